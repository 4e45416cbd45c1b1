"""How the processes of a job find each other, and end together when one is lost."""

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

from hypersphere.errors import Elsewhere, UserError, first_line
from hypersphere.util.launch import launched, remember_launcher

LOOK_AGAIN = 0.02  # seconds
REACHED = timedelta(seconds=30)  # in which a store that is there answers
# The last group, kept until the next. DDP holds it too: dropped by DDP, it would wait for its thread with the
# interpreter's lock held, for which that thread may wait in turn (torch 2.6 hung); dropped by Python, it lets go of it.
_ended: list[dist.ProcessGroup | None] = []


@contextlib.contextmanager
def joined(device: torch.device, seconds: float) -> Iterator[None]:
    """Inside, the processes of a launcher work together; one that does not answer for so long ends all of them."""
    remember_launcher()
    if launched() == 1 or dist.is_initialized():
        yield
        return
    backend, timeout = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timedelta(seconds=seconds)
    ours: Store | None = None
    try:
        store, rank, size = _met(timeout)
        ours = PrefixStore(_new_name(store, rank, size, seconds), store)
        dist.init_process_group(backend, store=ours, rank=rank, world_size=size, timeout=timeout)
        yield
    except Elsewhere:
        raise
    except UserError as error:  # all may have it
        if _is_told(ours):
            raise Elsewhere() from None
        error.joint = True
        raise
    except RuntimeError as error:
        if not _of_the_others(error):
            raise
        told = f"a process of this job ended, or did not answer within `timeout` {seconds:g} s"
        lost = Elsewhere() if _is_told(ours) else UserError(told)
        lost.joint = True
        raise lost from None
    finally:
        if dist.is_initialized():
            _ended[:] = [dist.group.WORLD]
            dist.destroy_process_group()


def _met(timeout: timedelta) -> tuple[Store, int, int]:
    """The store that all share, and which of how many this process is, as the launcher's variables say. torchrun's is
    there before its processes are: where it cannot be reached, torchrun is gone."""
    patience = min(timeout, REACHED) if _is_torchrun() else timeout
    try:
        store, rank, size = next(rendezvous("env://", timeout=patience))
        store.set_timeout(timeout)
        return store, rank, size
    except ValueError as error:
        told = f"RANK and WORLD_SIZE are set, but not all that torchrun says ({first_line(error)})"
        raise UserError(f"{told}: unset them") from None


def _new_name(store: Store, rank: int, size: int, seconds: float) -> str:
    """The same for all, and one that those before them had not.

    torchrun keeps its store when it starts processes anew, and in it the addresses of those that are gone. So each
    writes a number of its own, the first lists them all, and the list holds once everybody has found its number there.
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
        time.sleep(LOOK_AGAIN)
    raise dist.DistStoreError("timed out")


def _of_the_others(error: RuntimeError) -> bool:
    words = ("gloo", "nccl", "connection", "timed out", "timeout")
    return isinstance(error, dist.DistError) or any(word in str(error).lower() for word in words)


def _is_torchrun() -> bool:
    """Whether the store is torchrun's."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _is_told(store: Store | None) -> bool:
    """By another process: who is first, torchrun's store knows, which outlives them."""
    if store is None or not _is_torchrun():
        return False
    with contextlib.suppress(RuntimeError):
        store.set_timeout(timedelta(seconds=5))
        return store.add("told", 1) > 1
    return False
