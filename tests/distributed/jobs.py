"""python -m tests.distributed.jobs OUT: several processes at work, and what becomes of them.

They are forks of one process that has loaded torch, as that takes seconds; the elastic job is of torchrun's own agent.
"""

import json
import multiprocessing
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from hypersphere.cli import main
from hypersphere.distributed.collectives import merged
from hypersphere.distributed.rendezvous import joined
from hypersphere.train import Trainer
from tests.distributed.own import LOOPS, Own, loop_of_ones_own, sharded_energy, unequal_shares
from tests.distributed.updates import all_states

HEADS = ["--hidden", "16", "--projection", "6"]
OPTIONS = "encoder tests/tiny hidden 16 projection 6 optimizer sgd device cpu knn-every 0 log-every 1"
TINY = [f"--{word}" if place % 2 == 0 else word for place, word in enumerate(OPTIONS.split(" "))]
DIGITS = ["pretrain", "byol", "--data", "digits", "--batch", "216", "--epochs", "2", *TINY]  # 10 updates


def forked(count: int, work: Callable[[int], Any], told: Path) -> dict[str, Any]:
    """So many processes as a launcher starts them: how they ended, what they told, how long it took."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]

    def one(rank: int) -> None:
        os.dup2(os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "localhost"}
        os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(count), "MASTER_PORT": str(port)}
        os.environ["TORCHELASTIC_RUN_ID"] = "by hand"
        sys.exit(work(rank))

    began = time.monotonic()
    processes = [multiprocessing.get_context("fork").Process(target=one, args=(rank,)) for rank in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    seconds = time.monotonic() - began
    codes = [process.exitcode for process in processes]
    return {"codes": codes, "told": told.read_text().splitlines(), "seconds": seconds, "port": port}


def before_update(number: int, act: Callable[[], object]) -> None:
    """Act when that update of this process begins."""
    update = Trainer.update

    def acting(self: Trainer, *given: Any) -> Any:
        nonlocal number
        number -= 1
        if number == 0:
            act()
        return update(self, *given)

    Trainer.update = acting  # type: ignore[method-assign]


def different(rank: int) -> int:
    """Ranks with other seeds and precisions; the precision is not in the hash."""
    return main([*DIGITS, "--seed", str(rank), "--precision", ("float32", "bfloat16")[rank]])


def updates(out: Path) -> Callable[[int], None]:
    def work(rank: int) -> None:
        with joined(torch.device("cpu"), 60):
            assert merged({f"of {rank}": rank}) == {"of 0": 0, "of 1": 1}
            torch.save(all_states(), out / f"updates-{rank}.pt")
            share = slice(4 * rank, 4 * rank + 4)
            torch.save([loop_of_ones_own(kind, share) for kind in LOOPS], out / f"loop-{rank}.pt")
            torch.save(sharded_energy(), out / f"sharded-{rank}.pt")
            (out / f"unequal-{rank}").write_text(unequal_shares())

    return work


def resumed(out: Path) -> dict[str, Any]:
    """4 updates on two processes, of which one is asked to stop; by the same command 4 on three; the rest on one."""

    def part(words: list[str]) -> Callable[[int], int]:
        def work(rank: int) -> int:
            if rank == 1:
                before_update(4, lambda: os.kill(os.getpid(), signal.SIGTERM))
            return main(words)

        return work

    words = [*DIGITS, "--out", str(out / "resumed")]
    on_two, on_three = (forked(count, part(words), out / f"on-{count}") for count in (2, 3))
    on_one = forked(1, part(["pretrain", "--resume", str(out / "resumed")]), out / "on-1")
    return {"two": on_two, "three": on_three, "one": on_one}


def elastic_worker() -> None:
    if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        before_update(6, lambda: os.kill(os.getpid(), signal.SIGKILL))
    sys.exit(main([*DIGITS, "--save-every", "2"]))


def killed(out: Path) -> None:
    """One of two is killed; no folder is named."""
    os.chdir(out)
    agent = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "start_method": "fork", "monitor_interval": 0.1}
    config = LaunchConfig(1, 1, 2, run_id="job", max_restarts=1, **agent)  # type: ignore[arg-type]
    elastic_launch(config, elastic_worker)()


def stalled(out: Path) -> dict[str, Any]:
    """One of two sleeps longer than the other waits for it."""

    def work(rank: int) -> int:
        if rank == 1:
            before_update(3, lambda: time.sleep(3))
        began = time.monotonic()
        code = main([*DIGITS, "--timeout", "1", "--out", str(out / "stalled")])
        (out / f"stalled-{rank}").write_text(str(time.monotonic() - began))
        return code

    return forked(2, work, out / "stalled-told")


def full(out: Path) -> dict[str, Any]:
    """The first process can write no file as large as a checkpoint."""

    def work(rank: int) -> int:
        if rank == 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        return main([*DIGITS, "--save-every", "3", "--out", str(out / "full")])

    return forked(2, work, out / "full-told")


def from_files(out: Path) -> dict[str, Any]:
    from PIL import Image

    (out / "images").mkdir()
    for number in range(24):
        pixels = torch.randint(0, 256, (32, 32, 3), dtype=torch.uint8).numpy()
        Image.fromarray(pixels).save(out / "images" / f"{number}.png")
    words = ["pretrain", "byol", "--data", str(out / "images"), "--batch", "8", "--epochs", "1", *TINY]
    assert main([*words, "--out", str(out / "files-one")]) == 0
    return forked(2, lambda rank: main([*words, "--out", str(out / "files-two")]), out / "files-told")


def monitored(out: Path) -> dict[str, Any]:
    """Rank 0 alone measures the encoder and a random one, which have BatchNorm."""
    words = [*DIGITS, "--encoder", "hypersphere/digits", "--epochs", "1", "--knn-every", "1", "--timeout", "20"]
    return forked(2, lambda rank: main([*words, "--out", str(out / "monitored")]), out / "monitored-told")


def of_ones_own(out: Path) -> dict[str, Any]:
    """A user's method on two processes, stopped after its fourth update and gone on with."""
    words = [word.replace("byol", "tests.distributed.own:Own") for word in DIGITS if word not in HEADS]

    def work(name: str, rank: int) -> int:
        if rank == 1 and name == "own" and not (out / name).exists():
            before_update(4, lambda: os.kill(os.getpid(), signal.SIGTERM))
        code = main([*words, "--out", str(out / name)])
        with (out / f"{name}-dropped-{rank}").open("a") as file:
            file.writelines(f"{mask}\n" for mask in Own.dropped)
        return code

    first, second = (forked(2, partial(work, "own"), out / f"own-told-{part}") for part in (1, 2))
    return {"first": first, "second": second, "whole": forked(2, partial(work, "own-whole"), out / "own-told-3")}


def everything(out: Path) -> None:
    torch.set_num_threads(1)
    assert main([*DIGITS, "--out", str(out / "whole")]) == 0  # which loads all that the forks need
    found = {
        "updates": forked(2, updates(out), out / "updates-told"),
        "resumed": resumed(out),
        "stalled": stalled(out),
        "full": full(out),
        "uneven": forked(3, lambda rank: main([*DIGITS, "--batch", "128"]), out / "uneven-told"),
        "different": forked(2, different, out / "different-told"),
        "files": from_files(out),
        "monitored": monitored(out),
        "own": of_ones_own(out),
    }
    (out / "found.json").write_text(json.dumps(found))
    killed(out)


if __name__ == "__main__":
    everything(Path(sys.argv[1]))
