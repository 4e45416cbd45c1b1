"""Jobs for the paper's missing runs, and which of them fit into a given time."""

import time
from collections.abc import Iterable, Iterator, Sequence

import torch

from hypersphere.errors import UserError, did_you_mean
from hypersphere.paper.cells import AS_WRITTEN, Cell, Protocol, Table
from hypersphere.paper.cost import Prices
from hypersphere.paper.evidence import Evidence
from hypersphere.paper.figures import Figure
from hypersphere.paper.queue import STANDARD, Queue
from hypersphere.paper.verdict import Judge
from hypersphere.probes import PROBES
from hypersphere.runs.machine import pick_device
from hypersphere.sweeps.jobs import Job
from hypersphere.util.console import pluralize

STOPPING = 20.0  # seconds for running runs to save themselves when the time is up
STARTING = 5.0  # seconds from the choice of runs to their start
RUN_MEMORY = 24 * 2**30  # bytes of GPU memory for a run of ResNet-18 with 1024 images at once


def missing_runs(
    table: Table | Figure,
    evidence: Evidence,
    seeds: Iterable[int],
    cells: Sequence[str] = (),
    protocol: Protocol = AS_WRITTEN,
) -> Iterator[Job]:
    """Missing runs of a table or figure, seed by seed, so that finished runs can be compared at any moment.

    Args:
        table: The table or figure.
        evidence: All results.
        seeds: Seeds that each cell should have.
        cells: Names of the cells to run; empty for all.
        protocol: Protocol of the runs.

    Raises:
        UserError: If a cell is unknown, or not all cells can be run by the protocol.
    """
    names = [cell.name for cell in table.cells]
    for name in cells:
        if name not in names:
            raise UserError(
                f"{table.name} has no cell {name!r}{did_you_mean(name, names)} (its cells are {', '.join(names)})"
            )
    if not protocol.fits(table.cells):
        raise UserError(f"not all of {table.name} is tuned: leave out `tuned`")
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
    protocols: Sequence[Protocol] = STANDARD,
    seeds: int = 3,
) -> tuple[list[tuple[Job, str]], float]:
    """Missing runs of all tables that fit into a time, those with the most information per second first.

    Args:
        seconds: Time for all runs, their choice and their start.
        evidence: All results.
        prices: Expected durations.
        workers: Runs at once.
        protocols: Protocols to consider.
        seeds: Maximal number of seeds per cell.

    Returns:
        Jobs, each with the claim that gains most from it, and the seconds of the cheapest run that is left.
    """

    began = time.monotonic()
    queue = Queue(Judge(evidence), protocols, seeds)
    jobs = {key: _job(*key, 0) for key in queue.finished}
    costs = {key: prices.whole(job.config, job.probes, job.trained) for key, job in jobs.items()}
    seconds -= STARTING + time.monotonic() - began  # counting operations takes a while
    chosen = queue.fitting(lambda *key: costs[key], seconds, workers)
    rest = min((costs[key] for key in queue.scores()), default=0.0)
    return [(_job(missing.cell, missing.protocol, missing.seed), missing.sentence) for missing in chosen], rest


def first_that_fit(
    jobs: Sequence[Job], prices: Prices, seconds: float, workers: int
) -> tuple[list[tuple[Job, str]], float]:
    """As `within`, for given jobs, in their order."""
    free, taken, rest = [STARTING] * workers, [], []
    for job in jobs:
        price = prices.whole(job.config, job.probes, job.trained)
        end = min(free) + price
        if end <= seconds:
            free[free.index(min(free))] = end
            taken.append((job, ""))
        else:
            rest.append(price)
    return taken, min(rest, default=0.0)


def default_workers(device: str) -> int:
    """Runs at once: up to three per GPU if its memory suffices; one on a CPU."""
    found = pick_device(device)
    if found.type != "cuda":
        return 1
    memory = torch.cuda.get_device_properties(found).total_memory
    return max(1, min(3, memory // RUN_MEMORY)) * torch.cuda.device_count()


def sharing_of(workers: int, device: str) -> int:
    """Number of runs that share one device."""
    gpus = torch.cuda.device_count() if pick_device(device).type == "cuda" else 1
    return -(-workers // max(1, gpus))


def _job(cell: Cell, protocol: Protocol, seed: int) -> Job:
    config = protocol.config(cell, seed)
    length = pluralize(config.epochs, "epoch") if cell.trained else "untrained"
    title = f"{cell.name}, {'tuned, ' * protocol.tuned}{length}, seed {seed}"
    return Job(cell.name, title, config, cell.probes or PROBES, cell.trained)
