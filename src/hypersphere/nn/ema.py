"""The target network: an exponential moving average (EMA) of the online network."""

import copy

import torch
from torch import Tensor, nn

from hypersphere.kernels import usable


def make_target(online: nn.Module) -> nn.Module:
    """Make a target network: a copy of the online network without gradients.

    The copy stays in training mode, so its BatchNorm uses and tracks its own statistics.

    Args:
        online: The network to copy.

    Returns:
        A deep copy whose parameters do not require gradients.

    Example:
        >>> target = hs.nn.make_target(torch.nn.Linear(3, 2))
        >>> any(parameter.requires_grad for parameter in target.parameters())
        False
    """
    return copy.deepcopy(online).requires_grad_(False)


@torch.no_grad()
def ema_update(target: nn.Module, online: nn.Module, tau: float | Tensor) -> None:
    """Update the target network in place: ξ ← τ ξ + (1 − τ) θ. Buffers are not averaged.

    Args:
        target: The target network (ξ), as made by `make_target`.
        online: The online network (θ), with the same parameters.
        tau: Share of the old target, between 0 and 1: a number or a scalar tensor.

    Raises:
        RuntimeError: If the parameters of both networks differ in shape or number.

    Example:
        >>> online = torch.nn.Linear(3, 2)
        >>> target = hs.nn.make_target(online)
        >>> _ = torch.nn.init.ones_(online.weight), torch.nn.init.zeros_(target.weight)
        >>> hs.nn.ema_update(target, online, tau=0.75)
        >>> target.weight[0]
        tensor([0.2500, 0.2500, 0.2500])
    """
    ours: list[Tensor] = list(target.parameters())
    theirs: list[Tensor] = list(online.parameters())
    device = ours[0].device
    tau = tau.to(device) if isinstance(tau, Tensor) else torch.full((), tau, device=device)  # for CUDA graphs
    if usable(ours[0]):
        from hypersphere.kernels import update

        if update.takes(ours, theirs):
            return update.ema_update(ours, theirs, tau)
    step = torch._foreach_sub(theirs, ours)
    torch._foreach_mul_(step, 1 - tau)
    torch._foreach_add_(ours, step)
    return None
