"""hypersphere sweep: train with all combinations of some options, and compare the results."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from hypersphere.cli.help import describe_options, print_help, wants_help
from hypersphere.cli.next_step import print_next
from hypersphere.cli.parsing import OPTIONAL_VALUE, convert, is_list, missing_argument
from hypersphere.cli.pretrain import FIRST, GROUPS, default_config, parse_run_options, run_option_types
from hypersphere.errors import UserError, did_you_mean
from hypersphere.probes import TRANSFER_PROBES, Probe
from hypersphere.sweeps import FanOut
from hypersphere.util.run_files import is_run

if TYPE_CHECKING:
    from hypersphere.runs.results import Result
    from hypersphere.sweeps.grid import Point

REPORTED = 8  # most runs that the suggested report compares


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepOptions(FanOut):
    """Options of sweep beside those of the runs."""

    method: Annotated[str, Positional, arg(metavar="METHOD")]
    """Method, such as byol-mhe: `hypersphere methods` lists them. Your own: package.module:Class."""
    over: tuple[str, ...]
    """Options to vary with their values, such as lr=0.1,0.2 seed=0,1 or method=byol,simclr. Join the values of a list
    by +: energy_layers=projector,projector+predictor. For the workers of each run, write workers=4 here."""
    probes: tuple[Probe, ...] = TRANSFER_PROBES
    """What to measure at the end of each run."""
    out: Path = Path("runs/sweep")
    """Folder for the runs, their logs, and the results, one file each."""
    dry_run: bool = False
    """List what would run."""
    ray: Annotated[str | None, OPTIONAL_VALUE] = None


def run(words: Sequence[str]) -> None:
    given = parse_run_options("sweep", SweepOptions, words)
    if wants_help(words):
        _print_help(given)
    for name, shown in (("method", "METHOD"), ("over", "--over")):
        if name not in given:
            raise missing_argument("sweep", shown)
    own = [field.name for field in dataclasses.fields(SweepOptions)]
    options = SweepOptions(**{name: given.pop(name) for name in own if name in given})
    options.check()
    over = parse_grid(options.method, options.over, given)
    from hypersphere.sweeps.grid import missing_jobs, points_of, results_in
    from hypersphere.sweeps.jobs import check_failed, run_jobs
    from hypersphere.util.console import pluralize

    points = points_of(options.method, over, given)
    jobs = missing_jobs(points, results_in(options.out), options.probes)
    begun = sum(is_run(options.out / job.name) for job in jobs)
    runs = len({point.name for point in points})
    done, left = runs - len(jobs), len(jobs) - begun
    print(f"{pluralize(runs, 'run')}: {done} finished, {begun} begun, {left} to start", flush=True)
    if options.dry_run:
        for job in jobs:
            print(job)
        return
    failed = run_jobs(jobs, options.out / "results", options.out, options)
    _print_results(points, results_in(options.out))
    print(f"results in {options.out / 'results'}")
    check_failed(failed, len(jobs))
    names = dict.fromkeys(point.name for point in points)
    print_next("report", *(options.out / name for name in list(names)[:REPORTED]))


def _print_help(given: Mapping[str, Any]) -> None:
    default = default_config(given)
    own = describe_options(SweepOptions)
    about = (
        "Train a method with all combinations of some options, and compare the results. Running the command again\n"
        "skips finished runs.\n\n"
        f"Defaults depend on METHOD and --data: these are for {default.title} on {default.data}."
    )
    first = ("method", "over", "probes", "out", "dry_run", "workers", "ray", "retries")
    groups = {"run": [name for name in FIRST if name not in (*own, "resume")], **GROUPS}
    print_help("sweep", about, {**describe_options(default), **own}, first, groups)


def parse_grid(method: str, over: Sequence[str], given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Parse the values of --over.

    Args:
        method: Method whose options may be varied.
        over: Words such as lr=0.1,0.2.
        given: Options that are given on the command line beside --over.

    Returns:
        The values of each option by name, such as {"lr": [0.1, 0.2]}.

    Raises:
        UserError: If a word is no option of a run with values of its type, or the option is given elsewhere too.
    """
    hints = {**run_option_types(method), "method": str}
    grid: dict[str, list[Any]] = {}
    for word in over:
        option, _, values = word.partition("=")
        name = option.replace("-", "_")
        if not all(values.split(",")):
            raise UserError(f"`over` must be OPTION=VALUE,VALUE…, got {word!r}")
        if name not in hints:
            raise UserError(f"unknown option {option!r}{did_you_mean(name, hints)}")
        if name in grid:
            raise UserError(f"`over` {name} is given twice: give all of its values at once")
        if name in given:
            raise UserError(f"`{name}` is given beside `over` {name}=…: leave one out")
        hint = hints[name]
        grid[name] = [convert(name, hint, v.split("+") if is_list(hint) else [v]) for v in values.split(",")]
    return grid


def _print_results(points: "Sequence[Point]", found: "Mapping[str, Result]") -> None:
    from rich.table import Table

    from hypersphere.config import format_value
    from hypersphere.sweeps.grid import rows
    from hypersphere.util.console import table_console

    made = rows(points, found)
    names = list(dict.fromkeys(name for row in made for name in row.numbers))
    seeds = any("seed" in point.values for point in points)
    table = Table(*made[0].values, "runs", title="last epoch" + ", ± the 95 % interval over seeds" * seeds)
    for name in names:
        table.add_column(name, justify="right")
    for row in made:
        numbers = (str(row.numbers[name]).partition(" (n")[0] if name in row.numbers else "–" for name in names)
        table.add_row(*map(format_value, row.values.values()), row.runs, *numbers)
    table_console().print(table)
    if max((number.n for row in made for number in row.numbers.values()), default=0) == 2:
        print("two seeds give wide intervals: with five seeds they are about seven times narrower")
    if seeds and len(made) > 1:
        _print_differences(points, found, names)


def _print_differences(points: "Sequence[Point]", found: "Mapping[str, Result]", names: Sequence[str]) -> None:
    """Each row minus the first one. Nothing if no row can be compared."""
    from rich.table import Table

    from hypersphere.config import format_value
    from hypersphere.sweeps.differences import differences
    from hypersphere.util.console import table_console

    rows = [row for row in differences(points, found) if row.effects]
    if not rows:
        return
    table = Table(*rows[0].values, title="minus the first row, ± the 95 % interval that holds for all rows together")
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        shown = []
        for name in names:
            half = row.half_widths.get(name)
            mean = f"{row.effects[name].mean:+z.2f}" if name in row.effects else "–"
            shown.append(mean if half is None else f"{mean} ± {half:.2f}")
        table.add_row(*map(format_value, row.values.values()), *shown)
    table_console().print(table)
