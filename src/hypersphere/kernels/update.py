"""LARS and the moving average over all tensors of a network at once.

The references are `hypersphere.optim.lars` and `hypersphere.nn.ema`. Tensors are split into chunks, one program each.
Programs find their tensors by addresses in a table on the device.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK, BLOCK = 8192, 2048
Tensors = Sequence[Tensor]


@triton.jit
def _address(addresses, row, tensor, tensors):
    """Address of a tensor in the list number `row`."""
    return tl.multiple_of(tl.load(addresses + row * tensors + tensor).to(tl.pointer_type(tl.float32)), 16)


@triton.jit(do_not_specialize=["tensors"])
def norms_kernel(
    addresses, owners, starts, sizes, partial, tensors, decay, CHUNK: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """‖w‖² and ‖g + λw‖² of each chunk."""
    chunk = tl.program_id(0)
    tensor = tl.load(owners + chunk)
    w, g = _address(addresses, 0, tensor, tensors), _address(addresses, 1, tensor, tensors)
    start, size = tl.load(starts + chunk), tl.load(sizes + tensor)
    one = tl.zeros((BLOCK,), tl.float32)
    two = tl.zeros((BLOCK,), tl.float32)
    for block in tl.static_range(0, CHUNK, BLOCK):
        at = start + block + tl.arange(0, BLOCK)
        weight = tl.load(w + at, mask=at < size, other=0)
        update = tl.load(g + at, mask=at < size, other=0) + decay * weight
        one += weight * weight
        two += update * update
    tl.store(partial + 2 * chunk, tl.sum(one))
    tl.store(partial + 2 * chunk + 1, tl.sum(two))


@triton.jit(do_not_specialize=["tensors"])
def lars_kernel(
    addresses, owners, starts, sizes, firsts, partial, lr, tensors, decay, momentum, trust,
    ADAPT: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """v ← μv + η‖w‖/‖u‖ u;  w ← w − lr v, with u = g + λw."""
    chunk = tl.program_id(0)
    tensor = tl.load(owners + chunk)
    w, g = _address(addresses, 0, tensor, tensors), _address(addresses, 1, tensor, tensors)
    v = _address(addresses, 2, tensor, tensors)
    start, size = tl.load(starts + chunk), tl.load(sizes + tensor)
    rate = tl.load(lr)
    ratio = 1.0
    if ADAPT:
        ratio = _trust_ratio(partial, tl.load(firsts + tensor), tl.load(firsts + tensor + 1), trust)
    for block in tl.static_range(0, CHUNK, BLOCK):
        at = start + block + tl.arange(0, BLOCK)
        weight = tl.load(w + at, mask=at < size, other=0)
        update = tl.load(g + at, mask=at < size, other=0) + decay * weight
        velocity = momentum * tl.load(v + at, mask=at < size, other=0) + ratio * update
        tl.store(v + at, velocity, mask=at < size)
        tl.store(w + at, weight - rate * velocity, mask=at < size)


@triton.jit
def _trust_ratio(partial, first, last, trust):
    """η‖w‖/‖u‖ from the chunks of a tensor; 1 if either norm is 0."""
    one = tl.zeros((128,), tl.float32)
    two = tl.zeros((128,), tl.float32)
    for start in range(first, last, 128):
        chunk = start + tl.arange(0, 128)
        one += tl.load(partial + 2 * chunk, mask=chunk < last, other=0)
        two += tl.load(partial + 2 * chunk + 1, mask=chunk < last, other=0)
    weight, update = tl.sum(one), tl.sum(two)
    both = (weight > 0) & (update > 0)
    return tl.where(both, trust * tl.sqrt(weight / tl.where(both, update, 1.0)), 1.0)


@triton.jit(do_not_specialize=["tensors"])
def ema_kernel(addresses, owners, starts, sizes, tau, tensors, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    """ξ ← ξ + (1 − τ)(θ − ξ)."""
    chunk = tl.program_id(0)
    tensor = tl.load(owners + chunk)
    target, online = _address(addresses, 0, tensor, tensors), _address(addresses, 1, tensor, tensors)
    start, size = tl.load(starts + chunk), tl.load(sizes + tensor)
    share = 1 - tl.load(tau)
    for block in tl.static_range(0, CHUNK, BLOCK):
        at = start + block + tl.arange(0, BLOCK)
        before = tl.load(target + at, mask=at < size, other=0)
        tl.store(target + at, before + share * (tl.load(online + at, mask=at < size, other=0) - before), mask=at < size)


class _Chunks(NamedTuple):
    """Tensor and start of each chunk; size and first chunk of each tensor."""

    owners: Tensor
    starts: Tensor
    sizes: Tensor
    firsts: Tensor


@cache
def _chunks(sizes: tuple[int, ...], device: torch.device) -> _Chunks:
    counts = torch.tensor([triton.cdiv(size, CHUNK) for size in sizes])
    firsts = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    owners = torch.repeat_interleave(torch.arange(len(sizes)), counts)
    starts = (torch.arange(len(owners)) - firsts[owners]) * CHUNK
    return _Chunks(*(table.int().to(device) for table in (owners, starts, torch.tensor(sizes), firsts)))


class Table:
    """Addresses of tensors on the device, copied again if a tensor has moved.

    Copies are asynchronous, from host memory that is never written twice. A CUDA graph repeats its copies at each
    replay, so their host memory is kept. It is allocated beforehand, because recording cannot allocate it.
    """

    def __init__(self) -> None:
        self.sent: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}
        self.spare: dict[int, list[Tensor]] = {}
        self.recorded: list[tuple[Tensor, Tensor]] = []

    def of(self, *lists: Tensors) -> Tensor:
        where = tuple(tensor.data_ptr() for some in lists for tensor in some)
        device = lists[0][0].device
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            spare = self.spare.get(len(where), [])
            self.recorded.append(_sent(spare.pop() if spare else _host(len(where), device), where, device))
            return self.recorded[-1][1]
        spare = self.spare.setdefault(len(where), [])
        spare += [_host(len(where), device) for _ in range(4 - len(spare))]
        if where not in self.sent:
            if len(self.sent) > 256:
                self.sent.clear()
            self.sent[where] = _sent(_host(len(where), device), where, device)
        return self.sent[where][1]


def _host(length: int, device: torch.device) -> Tensor:
    return torch.empty(length, dtype=torch.long, pin_memory=device.type == "cuda")


def _sent(host: Tensor, where: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    host.copy_(torch.tensor(where))
    return host, host.to(device, non_blocking=True)


TABLE = Table()


def takes(*lists: Tensors) -> bool:
    """Whether tensors are float32 on one device, dense, and corresponding ones have the same layout."""
    device = lists[0][0].device
    return all(
        all(t.dtype == torch.float32 and t.device == device and _alike(t, some[0]) and _dense(t) for t in some)
        for some in zip(*lists, strict=True)
    )


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.stride() == other.stride() and one.numel() < 2**31


def _dense(x: Tensor) -> bool:
    """Whether x is dense, and aligned for loads of four numbers."""
    channels_last = x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return (x.is_contiguous() or channels_last) and x.data_ptr() % 16 == 0


def lars(
    weights: Tensors,
    gradients: Tensors,
    velocities: Tensors,
    *,
    lr: float | Tensor,
    momentum: float,
    decay: float,
    trust: float,
    adapt: bool,
) -> None:
    """One step of LARS, in place."""
    device, count = weights[0].device, len(weights)
    chunks = _chunks(tuple(w.numel() for w in weights), device)
    addresses = TABLE.of(weights, gradients, velocities)
    partial = torch.empty(2 * len(chunks.owners), device=device)
    rate = lr.to(device) if isinstance(lr, Tensor) else torch.full((), lr, device=device)
    grid, sizes = (len(chunks.owners),), {"CHUNK": CHUNK, "BLOCK": BLOCK}
    with torch.cuda.device_of(weights[0]):
        if adapt:
            norms_kernel[grid](addresses, *chunks[:3], partial, count, decay, **sizes)
        lars_kernel[grid](addresses, *chunks, partial, rate, count, decay, momentum, trust, ADAPT=adapt, **sizes)


def ema_update(target: Tensors, online: Tensors, tau: Tensor) -> None:
    chunks = _chunks(tuple(t.numel() for t in target), target[0].device)
    addresses = TABLE.of(target, online)
    with torch.cuda.device_of(target[0]):
        grid, rate = (len(chunks.owners),), tau.to(target[0].device)
        ema_kernel[grid](addresses, *chunks[:3], rate, len(target), CHUNK=CHUNK, BLOCK=BLOCK)
