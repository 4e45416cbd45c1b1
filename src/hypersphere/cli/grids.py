"""Commands that make many runs."""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin

import tyro

from hypersphere.cli.learn import recipe_of, told_of_data
from hypersphere.cli.options import parse, take_word, value_optional
from hypersphere.config import Config, worded
from hypersphere.errors import UserError, similar
from hypersphere.presets import PRESETS
from hypersphere.probes import TRANSFER_PROBES, Probe
from hypersphere.sweeps import FanOut

if TYPE_CHECKING:
    from hypersphere.paper.cells import Protocol
    from hypersphere.paper.state import Evidence
    from hypersphere.runs.results import Result
    from hypersphere.sweeps.grid import Point
    from hypersphere.sweeps.jobs import Job


@dataclasses.dataclass(frozen=True)
class SweepOptions(FanOut, Config):
    # Fields of the grid with their values, such as lr=0.1,0.2 seed=0,1 (or method=byol,simclr): all combinations are
    # run. Several names in one value are joined by +: energy_layers=projector,projector+predictor. The processes that
    # decode the images of each run are set here too: workers=4.
    over: tuple[str, ...] = ()
    # What to measure at the end of each run.
    probes: tuple[Probe, ...] = TRANSFER_PROBES
    # Folder of the runs, of their logs, and of the results, one file each.
    out: Path = Path("runs/sweep")
    # Say what would run.
    dry_run: bool = False
    # METHOD says it.
    method: tyro.conf.Suppress[tyro.conf.Fixed[Any]] = "byol"

    @staticmethod
    def of(config: Config) -> "SweepOptions":
        return SweepOptions(**{**vars(config), "out": SweepOptions.out, "workers": None})

    def config(self, workers: int | None) -> Config:
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(Config)}
        return Config(**{**given, "out": None, "workers": workers})


def sweep(words: list[str]) -> None:
    words = value_optional(words, "--ray")
    method = take_word(words, SweepOptions, "METHOD")
    known = functools.cache(recipe_of)  # a folder is looked into, and told of, once
    plain = known(method or "byol", **told_of_data(words))
    about = (
        "Run a method with all combinations of some options, and compare the results. Said again, it repeats nothing\n"
        f"that is finished. The other options are those of pretrain, by default of {plain.title} on {plain.data}."
    )
    prog = "hypersphere sweep METHOD --over FIELD=VALUE,…"
    options = parse(SweepOptions, words, prog, about, SweepOptions.of(plain))
    if method is None:
        raise UserError(f"say which method to train: hypersphere sweep METHOD … ({', '.join(PRESETS)})")
    over = _fields(options.over, words)
    from hypersphere.sweeps.grid import missing, results_in
    from hypersphere.sweeps.jobs import check_failed, run_jobs
    from hypersphere.util.progress import counted

    points, found = _points(method, words, over, known), results_in(options.out)
    jobs = missing(points, found, options.probes)
    begun = sum((options.out / job.name / "run.json").is_file() for job in jobs)
    runs = len({point.name for point in points})
    done, left = runs - len(jobs), len(jobs) - begun
    print(f"{counted(runs, 'run')}: {done} finished, {begun} begun, {left} to start", flush=True)
    if options.dry_run:
        for job in jobs:
            print(job)
        return
    failed = run_jobs(jobs, options.out / "results", options.out, options)
    _print_sweep(points, results_in(options.out))
    print(f"results in {options.out / 'results'}")
    check_failed(failed, len(jobs))


def _fields(over: Sequence[str], words: Sequence[str]) -> dict[str, list[str]]:
    """lr=0.1,0.2 → {"lr": ["0.1", "0.2"]}"""
    names, found = [field.name for field in dataclasses.fields(Config)], {}
    if not over:
        raise UserError("say what to vary: `over` FIELD=VALUE,VALUE …, such as lr=0.1,0.2 seed=0,1")
    for word in over:
        field, _, values = word.partition("=")
        name, option = field.replace("-", "_"), f"--{field.replace('_', '-')}"
        if not all(values.split(",")):
            raise UserError(f"`over` wants FIELD=VALUE,VALUE …, not {word!r}")
        if name not in names:
            raise UserError(f"unknown option {field!r}{similar(name, names)}")
        said = {word.partition("=")[0].replace("_", "-") for word in words} if name != "workers" else set()
        if name in found:
            raise UserError(f"`over` {name} is said twice: once with all of its values is enough")
        if {option, f"--no-{option[2:]}"} & said:
            raise UserError(f"{option} is said beside `over` {name}=…, which is enough")
        found[name] = values.split(",")
    return found


def _points(
    method: str, words: list[str], over: Mapping[str, list[str]], known: Callable[..., Config] = recipe_of
) -> "list[Point]":
    """Each as pretrain would understand it. `known`: the recipe of a method on data."""
    from hypersphere.runs.recipes import located
    from hypersphere.sweeps.grid import distinct, product

    points = []
    for values in product(over):
        of_data = {name: values.get(name, said) for name, said in told_of_data(words).items()}
        default = known(values.get("method", method), **of_data)
        said = [part for name, value in values.items() for part in _said(name, value)]
        options = parse(SweepOptions, [*words, *said], "hypersphere sweep METHOD", "", SweepOptions.of(default))
        config = options.config(options.workers if "workers" in values else None)
        points.append(({name: _value(config, name, values[name]) for name in values}, located(config)))
    return distinct(points)


def _said(name: str, value: str) -> list[str]:
    """A field's value, as words of the command line."""
    kinds = {field.name: field.type for field in dataclasses.fields(Config)}
    option = name.replace("_", "-")
    if name == "method":
        return []
    if kinds[name] is bool:
        if value.lower() not in ("true", "false"):
            raise UserError(f"`{name}` must be true or false, not {value}")
        return [f"--{option}" if value.lower() == "true" else f"--no-{option}"]
    return [f"--{option}", *value.split("+")] if get_origin(kinds[name]) is tuple else [f"--{option}={value}"]


def _value(config: Config, name: str, said: str) -> Any:
    return said if name in ("method", "data") else getattr(config, name)


def _print_sweep(points: "Sequence[Point]", found: "Mapping[str, Result]") -> None:
    from rich.table import Table

    from hypersphere.sweeps.grid import rows
    from hypersphere.util.progress import table_console

    made = rows(points, found)
    names = list(dict.fromkeys(name for row in made for name in row.numbers))
    seeds = any("seed" in point.values for point in points)
    table = Table(*made[0].values, "runs", title="last epoch" + ", ± the 95 % interval over seeds" * seeds)
    for name in names:
        table.add_column(name, justify="right")
    for row in made:
        numbers = (str(row.numbers[name]).partition(" (n")[0] if name in row.numbers else "–" for name in names)
        table.add_row(*map(worded, row.values.values()), row.runs, *numbers)
    table_console().print(table)


@dataclasses.dataclass(frozen=True)
class ReproduceOptions(FanOut):
    # Runs of each cell, with seeds 0, 1, …
    seeds: int = 3
    # The first of these seeds, to share them out among machines.
    first_seed: int = 0
    # Cells, by the names that the list shows (none: all of the table).
    cells: tuple[str, ...] = ()
    # Another length: a protocol kept apart from the published one (None: the published one).
    epochs: int | None = None
    # The hyperparameters that were tuned on validation images, instead of the paper's.
    tuned: bool = False
    # Time to spend, such as 25m or 1h30m: run what is missing and tells most per minute, of all tables or of NAME, and
    # stop in time. Three runs share a large GPU unless --workers says otherwise (None: no limit).
    budget: str | None = None
    # List what would run, and how long it would take.
    dry_run: bool = False
    # auto: the GPU if there is one.
    device: str = "auto"
    # Folder of the data files (None: $HYPERSPHERE_DATA, or ~/.cache/hypersphere/data).
    root: Path | None = None
    # Folder of the results.
    results: Path = Path("results")
    # Folder of the runs, from which an interrupted one goes on.
    runs: Path = Path("runs/paper")
    # The page of all results, written anew after each run.
    page: Path = Path("RESULTS.md")


def reproduce(words: list[str]) -> None:
    began = time.monotonic()
    words = value_optional(words, "--ray")
    name = take_word(words, ReproduceOptions, "NAME")
    about = (
        "Without NAME: list the paper's tables and figures, and what each lacks.\n"
        "With NAME (such as tab:sections, fig:uni, mechanism): run what it lacks.\n"
        "With --budget 25m: run what tells most about the claims in that time.\n"
        "--dry-run shows what would run, and with NAME every cell."
    )
    options = parse(ReproduceOptions, words, "hypersphere reproduce [NAME]", about, ReproduceOptions())
    options.check()
    for option, least in (("seeds", 1), ("epochs", 1), ("first_seed", 0)):
        value = getattr(options, option)
        if value is not None and value < least:
            raise UserError(f"`{option}` must be at least {least}, got {value}")
    if name is None and options.cells:
        raise UserError("`cells` are those of a table: hypersphere reproduce NAME --cells …")
    if options.budget is not None and options.workers == 0:
        raise UserError("`budget` needs runs in processes of their own, which can be stopped: leave `workers` 0 out")
    from hypersphere.paper.catalogue import named, protocol_for
    from hypersphere.paper.cells import TUNED, Protocol, Table
    from hypersphere.paper.reproduce import missing
    from hypersphere.paper.state import Evidence
    from hypersphere.report.terminal import list_jobs, list_overview, list_tables
    from hypersphere.runs.results import read_results

    if options.tuned and not TUNED:
        raise UserError("nothing has been tuned yet: leave `tuned` out")
    evidence, protocol = Evidence(read_results(options.results)), Protocol(options.epochs, options.tuned)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    wanted = None if name is None else named(name)
    jobs = [] if wanted is None else [*missing(wanted, evidence, seeds, options.cells, protocol_for(wanted, protocol))]
    if options.budget is not None:
        _spend(options, evidence, jobs if wanted is not None else None, protocol, began)
    elif wanted is None:
        list_overview(evidence, seeds, protocol, options.device)
        if not evidence.results:
            print(f"No results in {options.results}: those of the project are in its repository, in results.")
    elif options.dry_run:
        if isinstance(wanted, Table):
            list_tables(evidence, seeds, protocol, options.device, [wanted])
        list_jobs(jobs, evidence, options.device)
    else:
        _run(options, jobs)


def _spend(
    options: ReproduceOptions, evidence: "Evidence", jobs: "list[Job] | None", protocol: "Protocol", began: float
) -> None:
    """`jobs`: of the table that was named, to choose from; None: all that is missing anywhere."""
    from hypersphere.paper.reproduce import STOPPING, default_workers, first_that_fit, sharing_of, within
    from hypersphere.report.terminal import list_plan, prices_of
    from hypersphere.util.progress import duration, parse_duration

    assert options.budget is not None
    budget = parse_duration(options.budget)
    if budget <= STOPPING:
        raise UserError(f"`budget` must be longer than {duration(STOPPING)}, got {options.budget}")
    workers = options.workers or default_workers(options.device)
    prices, left, sharing = prices_of(evidence, options.device), budget - STOPPING, sharing_of(workers, options.device)
    if jobs is not None:
        plan, rest = first_that_fit(jobs, prices, left, workers, sharing)
    else:
        given = options.epochs is not None or options.tuned
        chosen = {"protocols": (protocol,)} if given else {}
        plan, rest = within(left, evidence, prices, workers, sharing, seeds=options.seeds, **chosen)
    seconds = {job.name: sharing * prices.whole(job.config, job.probes, job.trained) for job, _ in plan}
    list_plan(plan, seconds, workers, budget, sharing * rest)
    if options.dry_run or not plan:
        return
    spent = time.monotonic() - began
    how = dataclasses.replace(options, workers=workers)
    _run(how, [job for job, _ in plan], seconds=seconds, time_limit=left - spent)
    print(f"stopped after {duration(time.monotonic() - began)} of {duration(budget)}")


def _run(options: ReproduceOptions, jobs: "list[Job]", **limits: Any) -> None:
    from hypersphere.report.results import write_page
    from hypersphere.sweeps.jobs import check_failed, run_jobs
    from hypersphere.util.files import check_file
    from hypersphere.util.progress import counted

    check_file(options.page, "page")
    where: dict[str, Any] = {"device": options.device, "root": options.root}
    page = functools.partial(write_page, options.results, options.page)
    if jobs and options.workers != 0:
        print(f"logs in {options.runs / 'logs'}", flush=True)
    before = {*options.results.glob("*.json")}
    failed = run_jobs(jobs, options.results, options.runs, options, after=page, **limits, **where)
    page()
    made = len({*options.results.glob("*.json")} - before)
    print(f"{counted(made, 'run')}: results in {options.results}, all of them in {options.page}")
    check_failed(failed, len(jobs))
