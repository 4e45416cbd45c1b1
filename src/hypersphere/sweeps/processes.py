"""Runs as processes of this machine."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import hypersphere
from hypersphere.sweeps.work import GRACE, LOG, TICK, Work, tell_stopping
from hypersphere.util.cores import own_cores


class _Seat(NamedTuple):
    """What a process on this machine has to itself."""

    gpu: str | None
    cores: list[int]


class Processes:
    """Processes on this machine: each with a GPU, if there are any, and its share of the cores."""

    def __init__(self, workers: int | None, device: str) -> None:
        gpus = _gpus() if device in ("auto", "cuda") else []
        self.places = n = workers or len(gpus) or 1
        self.sharing = -(-n // max(1, len(gpus)))  # runs on one device
        cores = own_cores()
        shares = [cores[place::n] if n <= len(cores) else cores for place in range(n)]
        self.free = [_Seat(gpus[place % len(gpus)] if gpus else None, shares[place]) for place in range(n)]
        self.taken: dict[subprocess.Popen, _Seat] = {}

    def start(self, work: Work, folder: Path) -> subprocess.Popen:
        seat, here = self.free.pop(0), str(Path(hypersphere.__file__).parents[1])
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), here)))
        environment = {**os.environ, "PYTHONPATH": path}
        environment |= {} if seat.gpu is None else {"CUDA_VISIBLE_DEVICES": seat.gpu}
        environment |= {"HYPERSPHERE_SHARED": str(self.sharing)} if self.sharing > 1 else {}
        command = [sys.executable, "-P", "-c", "from hypersphere.sweeps.attempt import child; child()"]
        with open(folder / LOG, "ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self.taken[process] = seat
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # one that has died is noticed as such
            pickle.dump((seat.cores, folder, pickle.dumps(work.call)), process.stdin)
            process.stdin.flush()
        return process

    def ended(self, running: Collection[subprocess.Popen]) -> dict[subprocess.Popen, int]:
        time.sleep(TICK)
        over = {process: status for process in running if (status := process.poll()) is not None}
        for process in over:
            self._clear(process)
        return over

    def stop(self, running: Collection[subprocess.Popen]) -> None:
        tell_stopping(len(running))
        for process in running:
            process.terminate()
        end = time.monotonic() + GRACE
        try:
            while any(process.poll() is None for process in running) and time.monotonic() < end:
                time.sleep(TICK)
        finally:
            for process in running:
                self._clear(process)

    def _clear(self, process: subprocess.Popen) -> None:
        """Nothing is left of it, nor of those that decoded its images."""
        if process not in self.taken:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        self.free.append(self.taken.pop(process))


def _gpus() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them."""
    import torch

    count, told = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES")
    return told.split(",")[:count] if told else [str(n) for n in range(count)]
