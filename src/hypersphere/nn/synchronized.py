"""BatchNorm over the batch of all processes, with separate statistics for groups of images.

torch's SyncBatchNorm needs GPUs and has no groups. Shapes: x is B (images of this process) × C (channels) × …, member
is G (groups) × B, statistics are G × C.
"""

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from hypersphere.distributed.collectives import world_size


class Statistics(NamedTuple):
    number: Tensor  # G × 1: values per channel
    mean: Tensor
    variance: Tensor


def statistics(x: Tensor, member: Tensor) -> Statistics:
    """Statistics of each group over all processes; `member` is 1 where an image belongs to a group.

    The statistics of the processes are combined as in Chan et al. (1979): one message, and no cancellation as in
    Σx² − (Σx)²/n.
    """
    places = x[0, 0].numel()
    count = places * member.sum(dim=1, keepdim=True)
    mean = member @ _over_places(x) / count.clamp(min=1)
    spread = member @ _over_places((x - _of_images(mean, member, x)).square())
    mine = torch.cat([count, mean, spread], dim=1)
    parts = [torch.empty_like(mine) for _ in range(world_size())]
    dist.all_gather(parts, mine)
    counts, means, spreads = torch.stack(parts).split([1, *[x.shape[1]] * 2], dim=2)
    total = counts.sum(dim=0)
    mean = (counts * means).sum(dim=0) / total
    spread = (spreads + counts * (means - mean).square()).sum(dim=0)
    return Statistics(total, mean, spread / total)


class Synchronized(torch.autograd.Function):
    """(x − mean) / √(variance + ε) · weight + bias, and the statistics used."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, member: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        wide = x.to(weight.dtype)
        found = statistics(wide, member)
        inverse = torch.rsqrt(found.variance + eps)
        scale = inverse * weight
        shift = bias - found.mean * scale
        ctx.save_for_backward(x, weight, member, found.number, found.mean, inverse)
        ctx.mark_non_differentiable(*found)
        y = torch.addcmul(_of_images(shift, member, x), wide, _of_images(scale, member, x))
        return y.to(x.dtype), *found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        x, weight, member, count, mean, inverse = ctx.saved_tensors
        dy = dy.to(weight.dtype)
        unit = (x.to(weight.dtype) - _of_images(mean, member, x)) * _of_images(inverse, member, x)
        sums = torch.stack([member @ _over_places(dy), member @ _over_places(dy * unit)])  # of this process
        d_bias, d_weight = sums.sum(dim=1)
        dist.all_reduce(sums)
        along, across = (_of_images(each, member, x) for each in sums / count)
        dx = (dy - along - unit * across) * _of_images(inverse * weight, member, x)
        return dx.to(x.dtype), d_weight, d_bias, None, None


def _over_places(x: Tensor) -> Tensor:
    """Sums over all dimensions after B × C."""
    return x.flatten(2).sum(dim=2) if x.ndim > 2 else x


def _of_images(values: Tensor, member: Tensor, x: Tensor) -> Tensor:
    """The values of each image's group: G × C → B × C × 1 …"""
    return (member.T @ values).view(*x.shape[:2], *[1] * (x.ndim - 2))
