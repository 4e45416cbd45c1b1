"""Two networks at once on a GPU, part of which one network leaves idle if batches or late layers are small."""

import contextlib
from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import Tensor

from hypersphere.distributed.collectives import world_size

Compute = Callable[[], tuple[Tensor, ...]]


@contextlib.contextmanager
def on_side_stream(compute: Compute, x: Tensor) -> Iterator[Compute]:
    """Run a computation without gradients on a side stream of the GPU, while the body of the `with` block runs.

    The side stream is not used on a CPU, with several processes (which must exchange statistics in one order) and under
    torch.compile. The computation then runs when its result is requested.

    Args:
        compute: A function without arguments that returns a tuple of tensors. Nothing it reads may change before the
            block ends.
        x: An input of the computation: its device decides.

    Yields:
        A function that returns the result of `compute`. Call it after the block.

    Example:
        >>> x = torch.ones(2)
        >>> with hs.nn.on_side_stream(lambda: (2 * x,), x) as result:
        ...     y = 3 * x
        >>> result()
        (tensor([2., 2.]),)
    """
    if not x.is_cuda or world_size() > 1 or torch.compiler.is_compiling():
        yield lambda: _without_gradients(compute)
        return
    here, side = torch.cuda.current_stream(x.device), _side_stream(x.device)
    side.wait_stream(here)
    try:
        with torch.cuda.stream(side):
            found = _without_gradients(compute)
        yield lambda: found
    finally:
        # After an error too: a CUDA graph must not end with an unjoined stream, and memory that the side stream reads
        # must not be reused. The side stream's own memory is reused only there, after it has waited for this stream.
        here.wait_stream(side)


def _without_gradients(compute: Compute) -> tuple[Tensor, ...]:
    with torch.no_grad():
        return compute()


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
