"""A sweep that is killed, damaged and starved at random, and must end with the results of an undisturbed one.

    make chaos                                      # 40 disturbances, minutes
    python -m tests.chaos --disturbances 5 --seed 1

Runs are on image files, with worker processes, on one thread, so that weights must be the same to the
last bit, and all measures up to rounding.
"""

import argparse
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from hypersphere.errors import UserError
from hypersphere.sweeps.work import LOG
from hypersphere.train.checkpoint import load_checkpoint
from hypersphere.util.run_files import CHECKPOINT
from tests.folders import draw

COMMAND = [sys.executable, "-m", "hypersphere"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
LONGEST = 300  # seconds of an attempt that is left alone
KILLS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT, "hang up": signal.SIGHUP}
DISTURBANCES = [*KILLS, "kill a part", "kill a part", "flip a bit", "zero a block", "full disk", "small /dev/shm"]


class Chaos:
    """One sweep in a folder, and what was done to it."""

    def __init__(self, folder: Path, seed: int, epochs: int) -> None:
        self.folder, self.epochs, self.random = folder, epochs, random.Random(seed)
        self.out, self.done, self.skipped = folder / "disturbed", Counter(), Counter()
        for n in range(48):
            colour = ((200, 20, 20), (20, 200, 20), (20, 20, 200))[n % 3]
            draw(folder / "images" / f"class{n % 3}" / f"{n:02}.png", n, colour)

    def command(self, out: Path, jobs: int) -> list[str]:
        options = f"--epochs {self.epochs} --batch 12 --hidden 16 --projection 8 --size 32 --knn-every 2 --save-every 1"
        words = ["sweep", "byol", "--data", str(self.folder / "images"), "--encoder", "hypersphere/digits"]
        words += ["--over", "seed=0,1", "energy=0,10", "workers=1", *options.split(), "--device", "cpu"]
        return [*COMMAND, *words, "--workers", str(jobs), "--out", str(out), "--probes", "knn"]

    def attempt(self, kind: str | None) -> int | None:
        """Start the sweep, disturb it, and return its status; None if it was still running when it was ended."""
        prepare, command = None, self.command(self.out, self.random.choice((1, 2, 3)))
        if kind == "full disk":
            prepare = _full_disk
        if kind == "small /dev/shm":
            command = [
                "unshare",
                "-m",
                "sh",
                "-c",
                'mount -t tmpfs -o size=96k tmpfs /dev/shm && exec "$@"',
                "-",
                *command,
            ]
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=ENVIRONMENT, preexec_fn=prepare, start_new_session=True
            )
        limit = LONGEST if kind is None else self.random.uniform(3, 15)
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            self._end(process, kind)
            return None

    def _end(self, process: subprocess.Popen, kind: str | None) -> None:
        if kind is None:
            raise SystemExit(f"the sweep hangs: it has not ended after {LONGEST} s")
        if kind == "kill a part" and (parts := _below(process.pid)):
            os.kill(self.random.choice(parts), signal.SIGKILL)
            time.sleep(self.random.uniform(0, 5))
        everything = [process.pid, *_below(process.pid)]
        os.kill(process.pid, KILLS.get(kind, signal.SIGKILL))
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"the sweep has not ended 60 s after {kind}") from None
        if kind in ("flip a bit", "zero a block"):
            _wait_until_ended(everything)
            self._damage(kind)

    def _damage(self, kind: str) -> None:
        files = sorted(self.out.glob("*/checkpoint.pt"))
        if not files:
            self.skipped[f"{kind}: no checkpoint yet"] += 1
            return
        file = self.random.choice(files)
        content = bytearray(file.read_bytes())
        place = self.random.randrange(len(content))
        part = bytes(4096) if kind == "zero a block" else bytes([content[place] ^ (1 << self.random.randrange(8))])
        content[place : place + len(part)] = part[: len(content) - place]
        file.write_bytes(content)

    def disturb(self, count: int) -> None:
        kinds = [kind for kind in DISTURBANCES if self._possible(kind)]
        for number in range(count):
            kind = kinds[number % len(kinds)] if number < len(kinds) else self.random.choice(kinds)
            status = self.attempt(kind)
            self.done[kind] += 1
            print(f"{number + 1}/{count} {kind}: {'ended by it' if status is None else f'status {status}'}", flush=True)
            if status == 0 and self._finished():  # start again: there is more to disturb
                self.compare(self.folder / "undisturbed")
                shutil.rmtree(self.out)

    def _possible(self, kind: str) -> bool:
        if kind == "small /dev/shm":
            tried = ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=96k tmpfs /dev/shm"]
            if shutil.which("unshare") is None or subprocess.run(tried, capture_output=True).returncode:
                self.skipped["small /dev/shm: mounting is not permitted"] += 1
                return False
        return True

    def _finished(self) -> bool:
        return len(list((self.out / "results").glob("*.json"))) == 4

    def compare(self, reference: Path) -> None:
        """Raise SystemExit unless all runs have the weights, metrics and evaluations of the reference."""
        names = sorted(run.parent.name for run in reference.glob("*/run.json"))
        assert len(names) == 4, names
        for name in names:
            self._compare_weights(self.out / name, reference / name)
            for file in (f"{name}/metrics.jsonl", f"{name}/evaluation.json", f"results/{name}.json"):
                ours, theirs = (_numbers(folder / file) for folder in (self.out, reference))
                if differing := [
                    key for key in ours.keys() | theirs.keys() if not _close(ours.get(key), theirs.get(key))
                ]:
                    key = min(differing)
                    raise SystemExit(f"{file}: {key} is {ours.get(key)}, not {theirs.get(key)}")
        left = [str(part) for part in self.out.rglob("*.part")]
        if left:
            raise SystemExit(f"temporary files are left: {left}")
        logs = "".join(log.read_text(errors="replace") for log in (self.out / "logs").rglob(f"*{LOG}"))
        self.done["continued from the checkpoint before the last"] += logs.count("using the checkpoint before it")
        self.done["workers replaced"] += logs.count("it is replaced")
        self.done["batches through pipes"] += logs.count("/dev/shm is too small")
        self.done["sweeps compared"] += 1

    def _compare_weights(self, ours: Path, theirs: Path) -> None:
        wanted = load_checkpoint(theirs / CHECKPOINT)["method"]
        try:
            found = load_checkpoint(ours / CHECKPOINT)["method"]
        except UserError:  # damaged after the run had ended
            self.done["finished runs whose damage was noticed"] += 1
            return
        if differing := [key for key in wanted if not torch.equal(found[key], wanted[key])]:
            raise SystemExit(f"{ours.name}: {len(differing)} of {len(wanted)} tensors differ, such as {differing[0]}")


def _numbers(file: Path) -> dict[str, float]:
    """All numbers of a file by their places in it, except times."""
    lines = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    found: dict[str, float] = {}

    def collect(value: object, place: str) -> None:
        if isinstance(value, dict | list):
            for key, part in value.items() if isinstance(value, dict) else enumerate(value):
                collect(part, f"{place}/{key}")
        elif isinstance(value, int | float) and not place.endswith("/seconds"):
            found[place] = value

    for number, line in enumerate(lines):
        collect(json.loads(line), str(number))
    return found


def _close(ours: float | None, theirs: float | None) -> bool:
    """Equal up to the rounding of LAPACK, which depends on where arrays are in memory."""
    return ours is not None and theirs is not None and math.isclose(ours, theirs, rel_tol=1e-5, abs_tol=1e-7)


def _full_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))  # bytes of a file: less than a checkpoint


def _below(process: int) -> list[int]:
    """Processes that a process has started, and those that they have started."""
    found = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(pid): int(parent) for pid, parent in map(str.split, found.splitlines())}
    below, grown = {process}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in below} - below
        below, grown = below | more, bool(more)
    return sorted(below - {process})


def _wait_until_ended(processes: list[int]) -> None:
    until = time.monotonic() + 60
    while any(_is_running(process) for process in processes):
        if time.monotonic() > until:
            raise SystemExit("processes of a killed sweep are still there after 60 s")
        time.sleep(0.1)


def _is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--disturbances", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=30)
    options, began = parser.parse_args(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        chaos = Chaos(Path(folder), options.seed, options.epochs)
        subprocess.run(chaos.command(Path(folder) / "undisturbed", 2), env=ENVIRONMENT, check=True)
        chaos.disturb(options.disturbances)
        status = chaos.attempt(None)
        if status or not chaos._finished():
            print(Path(folder, "log").read_text()[-3000:])
            raise SystemExit(f"the last attempt ended with status {status}")
        chaos.compare(Path(folder) / "undisturbed")
    print(
        f"seed {options.seed}, {time.monotonic() - began:.0f} s: "
        "all weights are equal to the bit, all measures up to rounding"
    )
    for what, count in (*chaos.done.items(), *((f"skipped: {why}", count) for why, count in chaos.skipped.items())):
        print(f"{count:4} {what}")


if __name__ == "__main__":
    main()
