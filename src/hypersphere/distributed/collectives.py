"""What processes do together, each with its share of the batch; of one process alone, each of these is the identity.

Every process has a loss, and DistributedDataParallel takes the mean of their gradients. Here the gradient of what all
processes see is the sum over them. So a loss of gathered points, the same on all, has the gradient that one process
with the whole batch would find; and a mean over each process's own images needs nothing.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from hypersphere.errors import Elsewhere, UserError, refusals_told
from hypersphere.util.launch import place_on_machine

K = TypeVar("K")
T = TypeVar("T")


def size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if size() > 1 else 0


def gather(x: Tensor) -> Tensor:
    """The rows of all processes, as many of each, one process after the other: N × … → size · N × …"""
    if not x.ndim:
        raise ValueError("gather takes rows, N × …, not a single number")
    if size() == 1:
        return x
    if x.device.type == "cpu":  # a GPU would have to be waited for
        _check_shares(len(x))
    return _Gather.apply(x)


def _check_shares(rows: int) -> None:
    counts = [torch.zeros((), dtype=torch.int64) for _ in range(size())]
    dist.all_gather(counts, torch.tensor(rows))
    if len({*map(int, counts)}) > 1:
        told = ", ".join(str(int(count)) for count in counts)
        raise ValueError(f"processes must have as many rows each, not {told}: leave an incomplete last batch out")


def all_sum(x: Tensor) -> Tensor:
    return x if size() == 1 else _Sum.apply(x)


def all_mean(x: Tensor) -> Tensor:
    return x if size() == 1 else all_sum(x) / size()


def mine(x: Tensor) -> Tensor:
    """This process's share of the rows of all: what `gather` undoes."""
    share = len(x) // size()
    return x[rank() * share : (rank() + 1) * share]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(size())]
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
def shared_out(rows: Tensor, work: Callable[[Tensor], Tensor]) -> Tensor:
    """work(rows), of which each process does a part; the same bits on all."""
    if size() == 1:
        return work(rows)
    done = work(rows.tensor_split(size())[rank()])
    whole = done.new_empty(len(rows), *done.shape[1:])
    for source, part in enumerate(whole.tensor_split(size())):
        if source == rank():
            part.copy_(done)
        dist.broadcast(part, src=source)
    return whole


@torch.no_grad()
def as_on_first(tensors: Iterable[Tensor]) -> None:
    """Overwrite them by the first process's."""
    if size() > 1:
        for tensor in tensors:
            dist.broadcast(tensor, src=0)


def merged(found: dict[K, T]) -> dict[K, T]:
    """What each process has found, together."""
    if size() == 1:
        return found
    parts: list[Any] = [None] * size()
    dist.all_gather_object(parts, found)
    return {name: value for part in parts for name, value in part.items()}


def from_first(work: Callable[[], T]) -> T:
    """What the first process finds, on all; what goes wrong there ends all, and the first tells it."""
    found: list[Any] = [None]
    first_does(lambda: found.__setitem__(0, work()))
    if size() > 1:
        dist.broadcast_object_list(found)
    return found[0]


def first_does(work: Callable[[], object], flag: Callable[[], int] = lambda: 0) -> int:
    """The first process works, the others wait; then the largest flag of all."""
    return _together(work if rank() == 0 else None, flag)


def agreed(work: Callable[[], T]) -> T:
    """Each process works, without the others; what goes wrong on one ends all, and the first such tells it."""
    found: list[Any] = [None]
    _together(lambda: found.__setitem__(0, work()))
    return found[0]


def _together(work: Callable[[], object] | None, flag: Callable[[], int] = lambda: 0) -> int:
    failure = None
    try:
        if work is not None:
            with refusals_told():
                work()
    except UserError as error:
        failure = error
    if size() == 1:
        if failure is not None:
            raise failure
        return flag()
    told = torch.tensor([flag(), 0 if failure is None else size() - rank()])
    dist.all_reduce(told, dist.ReduceOp.MAX)
    largest, teller = told.tolist()
    if teller:
        raise failure if failure is not None and teller == size() - rank() else Elsewhere()
    return largest


def first_of_machine_first(work: Callable[[], T]) -> T:
    """`work` on each process: on one of each machine before the others, which then find the files it has made."""
    early = place_on_machine()[0] == 0
    found = agreed(lambda: work() if early else None)
    return agreed(lambda: found if early else work())  # type: ignore[return-value]
