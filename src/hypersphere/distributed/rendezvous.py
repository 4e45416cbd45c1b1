"""Rendezvous: how the processes of a job find each other, and end together if one is lost."""

import contextlib
import os
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from hypersphere.errors import ReportedElsewhere, UserError, first_line
from hypersphere.util.launcher import launched, remember_launcher

POLL_SECONDS = 0.02
STORE_TIMEOUT = timedelta(seconds=30)  # an existing store answers within this
# The last process group, kept until the next. If DDP dropped the last reference, it would wait for the group's thread
# while holding the GIL, for which that thread may wait (torch 2.6 hung). Python releases the GIL when it drops it.
_ended: list[dist.ProcessGroup | None] = []


@contextlib.contextmanager
def joined(device: torch.device, seconds: float) -> Iterator[None]:
    """Join the processes of a launcher. A process that does not answer for `seconds` ends all of them."""
    remember_launcher()
    if launched() == 1 or dist.is_initialized():
        yield
        return
    backend, timeout = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timedelta(seconds=seconds)
    ours: Store | None = None
    try:
        store, rank, size = _rendezvous(timeout)
        ours = PrefixStore(_new_name(store, rank, size, seconds), store)
        dist.init_process_group(backend, store=ours, rank=rank, world_size=size, timeout=timeout)
        yield
    except ReportedElsewhere:
        raise
    except UserError as error:  # possibly on all processes: one reports it
        if _is_reported(ours):
            raise ReportedElsewhere() from None
        error.joint = True
        raise
    except RuntimeError as error:
        if not _is_lost_connection(error):
            raise
        message = f"a process of this job ended, or did not answer within `timeout` {seconds:g} s"
        lost = ReportedElsewhere() if _is_reported(ours) else UserError(message)
        lost.joint = True
        raise lost from None
    finally:
        if dist.is_initialized():
            _ended[:] = [dist.group.WORLD]
            dist.destroy_process_group()


def _rendezvous(timeout: timedelta) -> tuple[Store, int, int]:
    """The shared store, the rank and the number of processes, from the launcher's environment variables.

    torchrun's store exists before its processes, so if it cannot be reached, torchrun is gone.
    """
    patience = min(timeout, STORE_TIMEOUT) if _is_torchrun() else timeout
    try:
        store, rank, size = next(rendezvous("env://", timeout=patience))
        store.set_timeout(timeout)
        return store, rank, size
    except ValueError as error:
        problem = f"RANK and WORLD_SIZE are set, but not all variables of torchrun ({first_line(error)})"
        raise UserError(f"{problem}: unset them, or start with torchrun") from None


def _new_name(store: Store, rank: int, size: int, seconds: float) -> str:
    """A name for this set of processes, equal on all and never used before.

    torchrun keeps its store when it restarts processes, with the addresses of the old ones. So each process writes a
    random number, the first lists all numbers, and the list is final once every process has found its number in it.
    """
    me, known, until = uuid.uuid4().hex, "", time.monotonic() + seconds
    store.set(f"hypersphere/{rank}", me)
    while time.monotonic() < until:
        if rank == 0:
            store.set("hypersphere/all", "-".join(store.get(f"hypersphere/{r}").decode() for r in range(size)))
        listed = store.get("hypersphere/all").decode()
        numbers = listed.split("-")
        if len(numbers) == size and numbers[rank] == me:
            found = store.add(listed, int(listed != known))
            known = listed
            if found == size:
                return f"{listed}/"
        time.sleep(POLL_SECONDS)
    raise dist.DistStoreError("timed out")


def _is_lost_connection(error: RuntimeError) -> bool:
    words = ("gloo", "nccl", "connection", "timed out", "timeout")
    return isinstance(error, dist.DistError) or any(word in str(error).lower() for word in words)


def _is_torchrun() -> bool:
    """Whether torchrun provides the store."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _is_reported(store: Store | None) -> bool:
    """Whether another process has reported the error. torchrun's store, which outlives the processes, knows."""
    if store is None or not _is_torchrun():
        return False
    with contextlib.suppress(RuntimeError):
        store.set_timeout(timedelta(seconds=5))
        return store.add("told", 1) > 1
    return False
