"""hypersphere reproduce: the paper's tables and figures."""

import dataclasses
import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypersphere.cli.options import parse, take_word, value_optional
from hypersphere.errors import UserError
from hypersphere.sweeps import FanOut

if TYPE_CHECKING:
    from hypersphere.paper.cells import Protocol
    from hypersphere.paper.state import Evidence
    from hypersphere.sweeps.jobs import Job


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
