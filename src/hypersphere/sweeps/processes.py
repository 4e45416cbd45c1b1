"""Runs as processes on this machine."""

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
from hypersphere.util.cores import available_cores


class _Slot(NamedTuple):
    """Hardware that is assigned to one process."""

    gpu: str | None
    cores: list[int]


class Processes:
    """A `Pool` of processes: each has a GPU, if there are any, and a share of the cores."""

    def __init__(self, workers: int | None, device: str) -> None:
        gpus = _gpus() if device in ("auto", "cuda") else []
        self.places = n = workers or len(gpus) or 1
        self.sharing = -(-n // max(1, len(gpus)))  # runs on one device
        cores = available_cores()
        shares = [cores[place::n] if n <= len(cores) else cores for place in range(n)]
        self.free = [_Slot(gpus[place % len(gpus)] if gpus else None, shares[place]) for place in range(n)]
        self.taken: dict[subprocess.Popen, _Slot] = {}

    def start(self, work: Work, folder: Path) -> subprocess.Popen:
        slot, source = self.free.pop(0), str(Path(hypersphere.__file__).parents[1])
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), source)))
        environment = {**os.environ, "PYTHONPATH": path}
        environment |= {} if slot.gpu is None else {"CUDA_VISIBLE_DEVICES": slot.gpu}
        environment |= {"HYPERSPHERE_SHARED": str(self.sharing)} if self.sharing > 1 else {}
        command = [sys.executable, "-P", "-c", "from hypersphere.sweeps.attempt import child; child()"]
        with open(folder / LOG, "ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self.taken[process] = slot
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `ended` notices that the process has died
            pickle.dump((slot.cores, folder, pickle.dumps(work.call)), process.stdin)
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
        """End a process with its own processes, such as those that decode images, and free its slot."""
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
    """Names of the visible GPUs, as CUDA_VISIBLE_DEVICES has them."""
    import torch

    count, visible = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[:count] if visible else [str(n) for n in range(count)]
