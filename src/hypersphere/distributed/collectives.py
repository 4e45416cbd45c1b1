"""Collectives of the processes of a job, each with its share of the batch. With one process, each is the identity.

Each process has a loss, and DistributedDataParallel averages their gradients. The gradients of the collectives are sums
over processes. So a loss of gathered points, equal on all processes, has the same gradient as in one process with the
whole batch. A mean over the images of each process needs no collective.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from hypersphere.errors import ReportedElsewhere, UserError, path_errors_as_user_errors
from hypersphere.util.launcher import local_rank_and_size

K = TypeVar("K")
T = TypeVar("T")


def world_size() -> int:
    """Number of processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if world_size() > 1 else 0


def gather(x: Tensor) -> Tensor:
    """Concatenate the rows of all processes, in the order of their ranks. Differentiable.

    A loss of gathered features under DistributedDataParallel has the gradient of the whole batch in one process.

    Args:
        x: Rows of this process, of shape (N, ...). All processes must have the same shape.

    Returns:
        Rows of all processes, of shape (processes · N, ...). With one process, `x` itself.

    Raises:
        ValueError: If `x` is a single number or, on the CPU, if processes have different numbers of rows.

    Example:
        >>> features = torch.randn(8, 4)
        >>> loss = hs.uniformity(hs.distributed.gather(features))
    """
    if not x.ndim:
        raise ValueError("gather needs rows (N × …), got a single number")
    if world_size() == 1:
        return x
    if x.device.type == "cpu":  # on a GPU the check would wait for the device
        _check_shares(len(x))
    return _Gather.apply(x)


def _check_shares(rows: int) -> None:
    counts = [torch.zeros((), dtype=torch.int64) for _ in range(world_size())]
    dist.all_gather(counts, torch.tensor(rows))
    if len({*map(int, counts)}) > 1:
        found = ", ".join(str(int(count)) for count in counts)
        raise ValueError(f"processes must have the same number of rows, got {found}: drop an incomplete last batch")


def all_sum(x: Tensor) -> Tensor:
    """Sum over processes. Differentiable."""
    return x if world_size() == 1 else _Sum.apply(x)


def all_mean(x: Tensor) -> Tensor:
    """Mean over processes. Differentiable."""
    return x if world_size() == 1 else all_sum(x) / world_size()


def mine(x: Tensor) -> Tensor:
    """This process's share of rows: the inverse of `gather`."""
    share = len(x) // world_size()
    return x[rank() * share : (rank() + 1) * share]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return mine(_summed(gradient))


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _summed(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _summed(gradient)


def _summed(x: Tensor) -> Tensor:
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


@torch.no_grad()
def split_over_ranks(rows: Tensor, work: Callable[[Tensor], Tensor]) -> Tensor:
    """work(rows), computed in parts by the processes; the same bits on all."""
    if world_size() == 1:
        return work(rows)
    done = work(rows.tensor_split(world_size())[rank()])
    whole = done.new_empty(len(rows), *done.shape[1:])
    for source, part in enumerate(whole.tensor_split(world_size())):
        if source == rank():
            part.copy_(done)
        dist.broadcast(part, src=source)
    return whole


@torch.no_grad()
def broadcast_from_first(tensors: Iterable[Tensor]) -> None:
    """Overwrite the tensors by those of the first process."""
    if world_size() > 1:
        for tensor in tensors:
            dist.broadcast(tensor, src=0)


def merged(found: dict[K, T]) -> dict[K, T]:
    """The union of the dicts of all processes."""
    if world_size() == 1:
        return found
    parts: list[Any] = [None] * world_size()
    dist.all_gather_object(parts, found)
    return {name: value for part in parts for name, value in part.items()}


def result_of_first(work: Callable[[], T]) -> T:
    """Run `work` on the first process and return its result on all. A UserError ends all; the first reports it."""
    result, _ = _together(work if rank() == 0 else None)
    if world_size() == 1:
        return result
    shared = [result]
    dist.broadcast_object_list(shared)
    return shared[0]


def run_on_first(work: Callable[[], object], flag: Callable[[], int] = lambda: 0) -> int:
    """Run `work` on the first process while the others wait; return the largest flag of all processes."""
    return _together(work if rank() == 0 else None, flag)[1]


def agreed(work: Callable[[], T]) -> T:
    """Run `work` on each process. A UserError on one ends all; the first process that has one reports it."""
    return _together(work)[0]


def _together(work: Callable[[], Any] | None, flag: Callable[[], int] = lambda: 0) -> tuple[Any, int]:
    """The result of `work` on this process, and the largest flag of all. A UserError of any process ends all."""
    result, failure = None, None
    try:
        if work is not None:
            with path_errors_as_user_errors():
                result = work()
    except UserError as error:
        failure = error
    if world_size() == 1:
        if failure is not None:
            raise failure
        return result, flag()
    state = torch.tensor([flag(), 0 if failure is None else world_size() - rank()])
    dist.all_reduce(state, dist.ReduceOp.MAX)
    largest_flag, reporter = state.tolist()
    if reporter:
        raise failure if failure is not None and reporter == world_size() - rank() else ReportedElsewhere()
    return result, largest_flag


def run_first_on_each_machine(work: Callable[[], T]) -> T:
    """Run `work` on one process of each machine, then on the others, which find the files it has written."""
    early = local_rank_and_size()[0] == 0
    found = agreed(lambda: work() if early else None)
    return agreed(lambda: found if early else work())  # type: ignore[return-value]
