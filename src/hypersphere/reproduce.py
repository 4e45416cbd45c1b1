"""The paper's cells that lack a result, and the page of those that have one."""

import os
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

from hypersphere.errors import UserError, similar
from hypersphere.files import write_atomically
from hypersphere.jobs import Job
from hypersphere.machine import pick_device
from hypersphere.paper.catalogue import all_protocols
from hypersphere.paper.cells import AS_WRITTEN, Cell, Protocol, Table
from hypersphere.paper.cost import Prices
from hypersphere.paper.figures import Figure
from hypersphere.paper.queue import STANDARD, Missing, Queue
from hypersphere.paper.state import Evidence
from hypersphere.paper.verdict import Judge
from hypersphere.probes import PROBES
from hypersphere.progress import tell_once
from hypersphere.report.forest import draw_forest
from hypersphere.report.markdown import results_page
from hypersphere.report.plots import draw_figures
from hypersphere.report.summary import main_claims
from hypersphere.results import read_results

STOPPING = 20.0  # seconds for what is running to save itself when the time is up
RUN_MEMORY = 24 * 2**30  # bytes that a run of ResNet-18 with 1024 images at once may take


def missing(
    table: Table | Figure,
    evidence: Evidence,
    seeds: Iterable[int],
    cells: Sequence[str] = (),
    protocol: Protocol = AS_WRITTEN,
) -> Iterator[Job]:
    """Seed by seed, so that whatever was finished when it is stopped can be compared."""
    names = [cell.name for cell in table.cells]
    for name in cells:
        if name not in names:
            raise UserError(
                f"{table.name} has no cell {name!r}{similar(name, names)} (its cells are {', '.join(names)})"
            )
    if not protocol.fits(table.cells):
        raise UserError(f"not all of {table.name} is tuned: leave `tuned` out")
    for seed in seeds:
        for cell in table.cells:
            chosen = not cells or cell.name in cells
            if chosen and cell.obstacle is None and seed not in evidence.of(cell, protocol):
                yield _job(cell, protocol, seed)


def within(
    seconds: float,
    evidence: Evidence,
    prices: Prices,
    workers: int,
    sharing: int,
    protocols: Sequence[Protocol] = STANDARD,
    seeds: int = 3,
) -> list[tuple[Job, Missing]]:
    """What is missing anywhere and can be done in so many seconds, that which tells most per second first."""

    def price(cell: Cell, protocol: Protocol) -> float:
        job = _job(cell, protocol, 0)
        return prices.whole(job.config, job.probes, job.trained)

    chosen = Queue(Judge(evidence), protocols, seeds).fitting(price, seconds, workers, sharing)
    return [(_job(missing.cell, missing.protocol, missing.seed), missing) for missing in chosen]


def first_that_fit(jobs: Sequence[Job], prices: Prices, seconds: float, workers: int, sharing: int) -> list[Job]:
    """Of a table's jobs, in its order, those that are done in so many seconds."""
    free, taken = [0.0] * workers, []
    for job in jobs:
        end = min(free) + sharing * prices.whole(job.config, job.probes, job.trained)
        if end <= seconds:
            free[free.index(min(free))] = end
            taken.append(job)
    return taken


def default_workers(device: str) -> int:
    """Runs at once: three share a GPU well if its memory holds them."""
    found = pick_device(device)
    if found.type != "cuda":
        return 1
    memory = torch.cuda.get_device_properties(found).total_memory
    return max(1, min(3, memory // RUN_MEMORY)) * torch.cuda.device_count()


def sharing_of(workers: int, device: str) -> int:
    """Runs that share one device."""
    gpus = torch.cuda.device_count() if pick_device(device).type == "cuda" else 1
    return -(-workers // max(1, gpus))


def _job(cell: Cell, protocol: Protocol, seed: int) -> Job:
    config = protocol.config(cell, seed)
    title = (
        f"{cell.name}, {protocol}, {config.epochs} epochs, seed {seed}"
        if protocol.tuned
        else (f"{cell.name}, {config.epochs} epochs, seed {seed}")
    )
    return Job(cell.name, title, config, cell.probes or PROBES, cell.trained)


def write_page(results: Path, page: Path) -> None:
    """All tables, claims and, where matplotlib is installed, figures: from the results alone."""
    evidence = Evidence(read_results(results))
    figures: dict[str, str] = {}
    if find_spec("matplotlib") is None:
        tell_once(f"no figure is drawn, nor shown in {page}: that needs pip install 'hypersphere[report]'")
    else:
        drawn = draw_figures(evidence, results / "figures")
        if evidence.results:
            drawn["forest"] = _forest(evidence, results / "figures")
        figures = {name: os.path.relpath(path, page.parent) for name, path in drawn.items()}
    write_atomically(page, results_page(evidence, figures=figures).encode(), shared=True)


def _forest(evidence: Evidence, folder: Path) -> Path:
    judge, protocols = Judge(evidence), all_protocols(evidence)
    return draw_forest(main_claims(judge, protocols), protocols, folder)
