"""Two networks at once: one alone leaves part of a GPU idle where batches, or late layers, are small."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from hypersphere.collectives import size

Compute = Callable[[], tuple[Tensor, ...]]


def meanwhile(compute: Compute, x: Tensor) -> Compute:
    """`compute()`, without gradients, on a stream of its own from now on; the function returned waits for what it
    gives. Its input x, and all else that it reads, must stay as it is until then.

    On a CPU, for one of several processes (which exchange statistics in one order) and in torch.compile it is done when
    its result is asked for.
    """
    if not x.is_cuda or size() > 1 or torch.compiler.is_compiling():
        return lambda: _without_gradients(compute)
    here, aside = torch.cuda.current_stream(x.device), _aside(x.device)
    aside.wait_stream(here)
    with torch.cuda.stream(aside):
        found = _without_gradients(compute)

    def result() -> tuple[Tensor, ...]:
        here.wait_stream(aside)
        for tensor in found:
            tensor.record_stream(here)  # its memory was given out for the other stream
        return found

    return result


def _without_gradients(compute: Compute) -> tuple[Tensor, ...]:
    with torch.no_grad():
        return compute()


@cache
def _aside(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
