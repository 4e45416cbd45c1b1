"""Runs as tasks of a Ray cluster."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from hypersphere.errors import UserError, first_line
from hypersphere.sweeps.attempt import attempt
from hypersphere.sweeps.work import GRACE, LOG, LOST, TICK, Work, tell_stopping
from hypersphere.util.console import notify


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to a Ray cluster, and yield the module `ray`.

    Args:
        address: Address of the cluster; empty for the cluster of this machine, which is started if needed.

    Raises:
        UserError: If Ray is not installed, or the cluster cannot be reached.
    """
    try:
        ray = import_module("ray")
    except ImportError:
        raise UserError("`ray` needs the package ray: pip install ray") from None
    if ray.is_initialized():  # by the caller, who will also shut it down
        yield ray
        return
    try:
        ray.init(address or None, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        where = address or "this machine"
        raise UserError(f"could not connect to the Ray cluster `ray` {where}: {first_line(error)}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


class Cluster:
    """A `Pool` on a Ray cluster: each run is a task in its own worker process."""

    def __init__(self, ray: Any, workers: int | None, device: str) -> None:
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0)) if device in ("auto", "cuda") else 0
        self.ray, self.places = ray, workers or gpus or max(1, int(resources.get("CPU", 1)))
        task = ray.remote(num_cpus=1, num_gpus=int(gpus > 0), max_retries=0, max_calls=1)
        self.remote = task(_attempt_on_worker).remote

    def start(self, work: Work, folder: Path) -> Any:
        return self.remote(work.call, folder, os.getcwd())

    def ended(self, running: Collection[Any]) -> dict[Any, int]:
        refs = list(running)
        over, _ = self.ray.wait(refs, num_returns=len(refs), timeout=TICK)
        return {ref: self._status(ref) for ref in over}

    def _status(self, ref: Any) -> int:
        try:
            return int(self.ray.get(ref))
        except self.ray.exceptions.RayTaskError as error:  # such as a worker without an installed hypersphere
            notify(f"Ray: {str(error).strip().splitlines()[-1]}")
            return 1
        except self.ray.exceptions.RayError:
            return LOST

    def stop(self, running: Collection[Any]) -> None:
        tell_stopping(len(running))
        refs = list(running)
        try:
            for ref in refs:
                self.ray.cancel(ref)
            if refs:
                self.ray.wait(refs, num_returns=len(refs), timeout=GRACE)
        finally:
            for ref in refs:
                self.ray.cancel(ref, force=True)


def _attempt_on_worker(call: Callable[[], None], folder: Path, working_folder: str) -> int:
    os.chdir(working_folder)
    with (
        open(folder / LOG, "a", encoding="utf-8", buffering=1) as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        return attempt(call, folder)
