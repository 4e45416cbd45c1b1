"""python -m tests.distributed.jobs OUT: several processes at work, started by forks of one that has loaded torch."""

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from hypersphere.collectives import joined
from tests.distributed.updates import all_states

CPU = torch.device("cpu")


def forked(count: int, work: Callable[[int], object], port: int) -> list[int]:
    """So many processes as a launcher starts them; how each ended."""

    def one(rank: int) -> None:
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "localhost"}
        os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(count), "MASTER_PORT": str(port)}
        sys.exit(work(rank))

    processes = [multiprocessing.get_context("fork").Process(target=one, args=(rank,)) for rank in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode or 0 for process in processes]


def updates(out: Path) -> Callable[[int], None]:
    def work(rank: int) -> None:
        with joined(CPU, 60):
            torch.save(all_states(), out / f"updates-{rank}.pt")

    return work


if __name__ == "__main__":
    torch.set_num_threads(1)
    assert forked(2, updates(Path(sys.argv[1])), 29511) == [0, 0]
