"""The paper's cells that lack a result, and which of them fit into a given time."""

from collections.abc import Iterable, Iterator, Sequence

import torch

from hypersphere.errors import UserError, similar
from hypersphere.paper.cells import AS_WRITTEN, Cell, Protocol, Table
from hypersphere.paper.cost import Prices
from hypersphere.paper.figures import Figure
from hypersphere.paper.queue import STANDARD, Queue
from hypersphere.paper.state import Evidence
from hypersphere.paper.verdict import Judge
from hypersphere.probes import PROBES
from hypersphere.runs.machine import pick_device
from hypersphere.sweeps.jobs import Job
from hypersphere.util.progress import counted

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
) -> tuple[list[tuple[Job, str]], float]:
    """What is missing anywhere and can be done in so many seconds, that which tells most per second first: jobs, each
    with the claim that gains most; and the seconds of the cheapest run that is left."""

    def price(cell: Cell, protocol: Protocol) -> float:
        job = _job(cell, protocol, 0)
        return prices.whole(job.config, job.probes, job.trained)

    queue = Queue(Judge(evidence), protocols, seeds)
    chosen = queue.fitting(price, seconds, workers, sharing)
    rest = min((price(*key) for key in queue.scores()), default=0.0)
    return [(_job(missing.cell, missing.protocol, missing.seed), missing.sentence) for missing in chosen], rest


def first_that_fit(
    jobs: Sequence[Job], prices: Prices, seconds: float, workers: int, sharing: int
) -> tuple[list[tuple[Job, str]], float]:
    """As `within`, of a table's jobs, in its order."""
    free, taken, rest = [0.0] * workers, [], []
    for job in jobs:
        price = prices.whole(job.config, job.probes, job.trained)
        end = min(free) + sharing * price
        if end <= seconds:
            free[free.index(min(free))] = end
            taken.append((job, ""))
        else:
            rest.append(price)
    return taken, min(rest, default=0.0)


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
    length = counted(config.epochs, "epoch") if cell.trained else "untrained"
    title = f"{cell.name}, {'tuned, ' * protocol.tuned}{length}, seed {seed}"
    return Job(cell.name, title, config, cell.probes or PROBES, cell.trained)
