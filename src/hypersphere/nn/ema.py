"""The target network: an exponential moving average of the online one."""

import copy

import torch
from torch import Tensor, nn

from hypersphere.kernels import usable


def target_of(online: nn.Module) -> nn.Module:
    """A copy without gradients. It stays in training mode: its BatchNorm uses, and tracks, statistics of its own."""
    return copy.deepcopy(online).requires_grad_(False)


@torch.no_grad()
def follow(target: nn.Module, online: nn.Module, tau: float | Tensor) -> None:
    """ξ ← τ ξ + (1 − τ) θ, for parameters; buffers are the target's own."""
    ours: list[Tensor] = list(target.parameters())
    theirs: list[Tensor] = list(online.parameters())
    where = ours[0].device
    tau = tau.to(where) if isinstance(tau, Tensor) else torch.full((), tau, device=where)  # which a graph can record
    if usable(ours[0]):
        from hypersphere.kernels import update

        if update.takes(ours, theirs):
            return update.follow(ours, theirs, tau)
    step = torch._foreach_sub(theirs, ours)
    torch._foreach_mul_(step, 1 - tau)
    torch._foreach_add_(ours, step)
    return None
