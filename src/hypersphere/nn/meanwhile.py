"""Two networks at once: one alone leaves part of a GPU idle where batches, or late layers, are small."""

import contextlib
from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import Tensor

from hypersphere.distributed.collectives import size

Compute = Callable[[], tuple[Tensor, ...]]


@contextlib.contextmanager
def meanwhile(compute: Compute, x: Tensor) -> Iterator[Compute]:
    """`compute()`, without gradients, on a stream of its own while the body goes on; what the context gives returns its
    result, once the body is done. Its input x, and all else that it reads, must stay as it is until then.

    On a CPU, for one of several processes (which exchange statistics in one order) and in torch.compile it is done when
    its result is asked for.
    """
    if not x.is_cuda or size() > 1 or torch.compiler.is_compiling():
        yield lambda: _without_gradients(compute)
        return
    here, aside = torch.cuda.current_stream(x.device), _aside(x.device)
    aside.wait_stream(here)
    try:
        with torch.cuda.stream(aside):
            found = _without_gradients(compute)
        yield lambda: found
    finally:
        # Whatever happened: a recording must not end with a stream apart, nor memory that it reads be given out again.
        # Its own is given out again on that stream alone, which waits for this one first.
        here.wait_stream(aside)


def _without_gradients(compute: Compute) -> tuple[Tensor, ...]:
    with torch.no_grad():
        return compute()


@cache
def _aside(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
