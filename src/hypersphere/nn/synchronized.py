"""BatchNorm over the batch of all processes, in groups that have statistics of their own.

Shapes: x is B (images of this process) × C (channels) × …, group B, statistics G (groups) × C. torch's SyncBatchNorm is
for GPUs alone and knows no groups.
"""

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from hypersphere.distributed.collectives import size


class Statistics(NamedTuple):
    number: Tensor  # G × 1: of values of a channel
    mean: Tensor
    variance: Tensor


def statistics(x: Tensor, member: Tensor) -> Statistics:
    """Of each group over all processes: those of each process's part (Chan et al. 1979) are put together, so that one
    message does, and nothing is lost as it is in Σx² − (Σx)²/n. `member` is G × B: 1 where an image is in a group."""
    places = x[0, 0].numel()
    count = places * member.sum(dim=1, keepdim=True)
    mean = member @ _over_places(x) / count.clamp(min=1)
    spread = member @ _over_places((x - _of_images(mean, member, x)).square())
    mine = torch.cat([count, mean, spread], dim=1)
    parts = [torch.empty_like(mine) for _ in range(size())]
    dist.all_gather(parts, mine)
    counts, means, spreads = torch.stack(parts).split([1, *[x.shape[1]] * 2], dim=2)
    total = counts.sum(dim=0)
    mean = (counts * means).sum(dim=0) / total
    spread = (spreads + counts * (means - mean).square()).sum(dim=0)
    return Statistics(total, mean, spread / total)


class Synchronized(torch.autograd.Function):
    """(x − mean) / √(variance + ε) · weight + bias, and the statistics."""

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
    """B × C: sums over the rest."""
    return x.flatten(2).sum(dim=2) if x.ndim > 2 else x


def _of_images(values: Tensor, member: Tensor, x: Tensor) -> Tensor:
    """G × C → B × C × 1 …: each image's, of its group."""
    return (member.T @ values).view(*x.shape[:2], *[1] * (x.ndim - 2))
