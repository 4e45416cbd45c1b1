"""hypersphere reproduce: run the paper's tables and figures, and show what is missing."""

import dataclasses
import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from hypersphere.cli.next_step import print_next
from hypersphere.cli.parsing import OPTIONAL_VALUE, parse
from hypersphere.errors import UserError
from hypersphere.sweeps import FanOut

if TYPE_CHECKING:
    from hypersphere.paper.cells import Protocol
    from hypersphere.paper.evidence import Evidence
    from hypersphere.sweeps.jobs import Job


SELECTION = "selection"


@dataclasses.dataclass(frozen=True)
class ReproduceOptions(FanOut):
    """Run the paper's tables and figures.

    Without NAME: list them and show what is missing. With NAME: run what it lacks. With NAME selection: show which
    measures without labels predict the accuracy of the runs there are. With --budget: run what tells most
    about the claims in that time. --dry-run only shows what would run."""

    name: Annotated[str | None, Positional, arg(metavar="[NAME]")] = None
    """Table or figure, such as tab:sections, fig:uni or mechanism; or selection."""
    seeds: int = 3
    """Runs of each cell, with seeds 0, 1, …"""
    first_seed: int = 0
    """First of these seeds, to share them among machines."""
    cells: tuple[str, ...] = ()
    """Cells to run, by the names that the list shows. None given: all cells of the table."""
    epochs: int | None = None
    """Train for this many epochs. Such results are kept apart from the published protocol's."""
    tuned: bool = False
    """Use the options that were tuned on validation images instead of the paper's."""
    budget: str | None = None
    """Time to spend, such as 25m or 1h30m: run what tells most per minute, of all tables or of NAME, and stop in time.
    Three runs share a large GPU unless --workers is given. None: no limit."""
    dry_run: bool = False
    """List what would run and how long it would take."""
    device: str = "auto"
    """Device, such as cpu or cuda:1. auto: the GPU if there is one."""
    root: Path | None = None
    """Folder of the dataset files. None: $HYPERSPHERE_DATA, or ~/.cache/hypersphere/data."""
    results: Path = Path("results")
    """Folder of the results."""
    runs: Path = Path("runs/paper")
    """Folder of the runs, from which interrupted ones continue."""
    page: Path = Path("RESULTS.md")
    """Page of all results, written again after each run."""
    ray: Annotated[str | None, OPTIONAL_VALUE] = None


def run(words: Sequence[str]) -> None:
    began = time.monotonic()
    options = parse("reproduce", ReproduceOptions, words)
    options.check()
    name = options.name
    for option, least in (("seeds", 1), ("epochs", 1), ("first_seed", 0)):
        value = getattr(options, option)
        if value is not None and value < least:
            raise UserError(f"`{option}` must be at least {least}, got {value}")
    if name is None and options.cells:
        raise UserError("`cells` needs the table: hypersphere reproduce NAME --cells …")
    if options.budget is not None and options.workers == 0:
        raise UserError("`budget` needs worker processes, which it can stop: leave out `workers` 0")
    from hypersphere.paper.catalogue import named, protocol_for
    from hypersphere.paper.cells import TUNED, Protocol, Table
    from hypersphere.paper.evidence import Evidence
    from hypersphere.paper.reproduce import missing_runs
    from hypersphere.report.terminal import list_jobs, list_overview, list_tables
    from hypersphere.runs.results import read_results

    if name == SELECTION:
        from hypersphere.report.selection import print_selection

        print_selection(read_results(options.results))
        return
    if options.tuned and not TUNED:
        raise UserError("there are no tuned options yet: leave out `tuned`")
    evidence, protocol = Evidence(read_results(options.results)), Protocol(options.epochs, options.tuned)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    wanted = None if name is None else named(name)
    jobs = []
    if wanted is not None:
        jobs = [*missing_runs(wanted, evidence, seeds, options.cells, protocol_for(wanted, protocol))]
    if options.budget is not None:
        _run_within_budget(options, evidence, jobs if wanted is not None else None, protocol, began)
    elif wanted is None:
        list_overview(evidence, seeds, protocol, options.device)
        if not evidence.results:
            print(f"No results in {options.results}: the project's results are in its repository, in results.")
        print_next("reproduce", "NAME", "--dry-run")
    elif options.dry_run:
        if isinstance(wanted, Table):
            list_tables(evidence, seeds, protocol, options.device, [wanted])
        list_jobs(jobs, evidence, options.device)
    else:
        _run_jobs(options, jobs)


def _run_within_budget(
    options: ReproduceOptions, evidence: "Evidence", jobs: "list[Job] | None", protocol: "Protocol", began: float
) -> None:
    """Run what fits into the budget. `jobs`: those of the table NAME; None: choose among all tables."""
    from hypersphere.paper.reproduce import STOPPING, default_workers, first_that_fit, sharing_of, within
    from hypersphere.report.terminal import list_plan, prices_of
    from hypersphere.util.console import duration, parse_duration

    assert options.budget is not None
    budget = parse_duration(options.budget)
    if budget <= STOPPING:
        raise UserError(f"`budget` must be longer than {duration(STOPPING)}, got {options.budget}")
    workers = options.workers or default_workers(options.device)
    prices = dataclasses.replace(prices_of(evidence, options.device), sharing=sharing_of(workers, options.device))

    def left() -> float:
        return budget - STOPPING - (time.monotonic() - began)

    if jobs is not None:
        plan, rest = first_that_fit(jobs, prices, left(), workers)
    else:
        given = options.epochs is not None or options.tuned
        chosen = {"protocols": (protocol,)} if given else {}
        plan, rest = within(left(), evidence, prices, workers, seeds=options.seeds, **chosen)
    seconds = {job.name: prices.whole(job.config, job.probes, job.trained) for job, _ in plan}
    list_plan(plan, seconds, workers, budget, rest)
    if options.dry_run or not plan:
        return
    how = dataclasses.replace(options, workers=workers)
    _run_jobs(how, [job for job, _ in plan], seconds=seconds, time_limit=left())
    print(f"stopped after {duration(time.monotonic() - began)} of {duration(budget)}")


def _run_jobs(options: ReproduceOptions, jobs: "list[Job]", **limits: Any) -> None:
    from hypersphere.report.results import write_page
    from hypersphere.sweeps.jobs import check_failed, run_jobs
    from hypersphere.util.console import pluralize
    from hypersphere.util.files import check_file

    check_file(options.page, "page")
    where: dict[str, Any] = {"device": options.device, "root": options.root}
    page = functools.partial(write_page, options.results, options.page)
    if jobs and options.workers != 0:
        print(f"logs in {options.runs / 'logs'}", flush=True)
    before = {*options.results.glob("*.json")}
    failed = run_jobs(jobs, options.results, options.runs, options, after=page, **limits, **where)
    page()
    made = len({*options.results.glob("*.json")} - before)
    print(f"{pluralize(made, 'run')}: results in {options.results}, all of them in {options.page}")
    check_failed(failed, len(jobs))
