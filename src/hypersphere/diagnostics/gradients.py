"""Strength of a weight regularizer relative to the loss: the ratio of their gradient norms, by network."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hypersphere.errors import first_line
from hypersphere.evaluate.features import without_autotuning
from hypersphere.util.console import notify_once


class Losses(NamedTuple):
    """Networks by name, and two scalars that depend on their parameters."""

    networks: Mapping[str, nn.Module]
    loss: Tensor
    regularizer: Tensor


def gradient_ratios(networks: Mapping[str, nn.Module], loss: Tensor, regularizer: Tensor) -> dict[str, float]:
    """Norm of the regularizer's gradient over the norm of the loss's, with respect to each network's parameters.

    Args:
        networks: Networks by name. Parameters without `requires_grad` do not count.
        loss: A scalar that depends on the parameters.
        regularizer: Another scalar, multiplied by its weight.

    Returns:
        A ratio for each name. 0 if the regularizer does not depend on the network. NaN if it does and the loss does
        not, or if a gradient is not finite.

    Example:
        >>> layer = nn.Linear(2, 1, bias=False)
        >>> gradient_ratios({"head": layer}, layer.weight.sum(), 2 * layer.weight.sum())
        {'head': 2.0}
    """
    parameters = {name: [p for p in part.parameters() if p.requires_grad] for name, part in networks.items()}
    flat = [p for own in parameters.values() for p in own]
    norms = {}
    for title, value in (("loss", loss), ("regularizer", regularizer)):
        found = iter(torch.autograd.grad(value, flat, allow_unused=True) if value.requires_grad else [None] * len(flat))
        norms[title] = {name: _norm([next(found) for _ in own]) for name, own in parameters.items()}
    return {name: _ratio(norms["regularizer"][name], norms["loss"][name]) for name in parameters}


def _norm(gradients: list[Tensor | None]) -> float:
    """Norm of all gradients together; None is the gradient of a parameter that is not used."""
    return math.hypot(*(float(gradient.float().norm()) for gradient in gradients if gradient is not None))


def _ratio(regularizer: float, loss: float) -> float:
    if not (math.isfinite(regularizer) and math.isfinite(loss)):
        return math.nan
    if regularizer == 0:
        return 0.0
    return regularizer / loss if loss else math.nan


class GradientMonitor:
    """Records `gradient_ratio/NETWORK` during training, see `gradient_ratios`.

    It changes nothing in the run, and restores torch's random state. If the ratios cannot be computed (the GPU runs out
    of memory, or a custom method cannot be copied), it prints one line and records none.
    """

    def __init__(self, every: int, losses: Callable[[], Losses], device: torch.device) -> None:
        """`losses` computes the losses of a copy of the networks, again at each call."""
        self.every, self.losses, self.failed = every, losses, False
        self.generators = [device] if device.type == "cuda" else []

    def __call__(self, encoder: nn.Module) -> dict[str, float]:
        if self.failed:
            return {}
        try:
            with torch.random.fork_rng(self.generators), torch.enable_grad(), without_autotuning():
                ratios = gradient_ratios(*self.losses())
        except Exception as error:  # a measurement must not end a run
            self.failed = True
            notify_once(f"gradient ratios are not recorded ({first_line(error)})")
            return {}
        return {f"gradient_ratio/{name}": ratio for name, ratio in ratios.items()}
