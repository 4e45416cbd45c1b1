"""The paper's cells that lack a result, and the page of those that have one."""

from collections.abc import Iterable, Iterator, Sequence

import torch

from hypersphere.errors import UserError, similar
from hypersphere.paper.cells import AS_WRITTEN, Cell, Protocol, Table
from hypersphere.paper.cost import Prices
from hypersphere.paper.figures import Figure
from hypersphere.paper.queue import STANDARD, Missing, Queue
from hypersphere.paper.state import Evidence
from hypersphere.paper.verdict import Judge
from hypersphere.probes import PROBES
from hypersphere.runs.machine import pick_device
from hypersphere.sweeps.jobs import Job

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
