"""Commands that make many runs."""

import dataclasses
from pathlib import Path

from hypersphere.errors import UserError
from hypersphere.options import parse, take_word


@dataclasses.dataclass(frozen=True)
class ReproduceOptions:
    # Runs of each cell, with seeds 0, 1, …
    seeds: int = 3
    # Cells, by the names that the list shows (none: all of the table).
    cells: tuple[str, ...] = ()
    # Another length: a protocol kept apart from the published one (None: the published one).
    epochs: int | None = None
    # The hyperparameters that were tuned on validation images, instead of the paper's.
    tuned: bool = False
    # Say what would run, and how long it would take.
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
    name = take_word(words, ReproduceOptions, "NAME")
    about = "List the paper's tables and figures with the state of each cell; with NAME, run what that one lacks."
    options = parse(ReproduceOptions, words, "hypersphere reproduce [NAME]", about, ReproduceOptions())
    if options.seeds < 1 or (options.epochs is not None and options.epochs < 1):
        raise UserError("`seeds` and `epochs` must be at least 1")
    from hypersphere.paper.cells import TUNED, Protocol
    from hypersphere.paper.state import Evidence
    from hypersphere.report.terminal import list_jobs, list_tables
    from hypersphere.reproduce import missing, named, run_jobs, write_page
    from hypersphere.results import read_results

    if options.tuned and not TUNED:
        raise UserError("nothing has been tuned yet: leave `tuned` out")
    evidence, protocol = Evidence(read_results(options.results)), Protocol(options.epochs, options.tuned)
    if name is None:
        list_tables(evidence, options.seeds, protocol, options.device)
        return
    wanted = named(name)
    jobs = list(missing(wanted, evidence, options.seeds, options.cells, protocol))
    if options.dry_run:
        list_jobs(jobs, options.device)
        return
    where = {"device": options.device, "root": options.root}
    run_jobs(jobs, options.results, options.runs, options.page, **where)
    write_page(options.results, options.page)
    print(f"{len(jobs)} runs: results in {options.results}, all of them in {options.page}")
