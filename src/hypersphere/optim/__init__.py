"""Optimizers by name (LARS, SGD, AdamW, Muon), and schedules as functions of the step.

`build_optimizer` sets up the parameter groups of a method; the training loop sets learning rate and progress.

May import: errors, kernels, util.
"""

from functools import partial
from typing import Any, Literal, get_args

import torch

from hypersphere.optim.before_step import clip_gradients, scheduled_decay
from hypersphere.optim.lars import LARS
from hypersphere.optim.muon import Muon
from hypersphere.optim.schedules import rising, scaled, warmup_cosine

__all__ = ["LARS", "Muon", "Optimizer", "build_optimizer", "rising", "scaled", "warmup_cosine"]

Optimizer = Literal["lars", "sgd", "adamw", "muon"]


def build_optimizer(
    name: Optimizer,
    groups: list[dict[str, Any]],
    *,
    weight_decay: float,
    momentum: float,
    trust: float,
    weight_decay_end: float | None = None,
    peak: float = 0.0,
    clip: float | None = None,
) -> torch.optim.Optimizer:
    """Build an optimizer for the parameter groups of a method.

    Before each step, the training loop sets `lr` of each group, and `progress` (0 to 1) for the schedule of the decay.
    A group's own options, such as `weight_decay` or `betas`, take precedence. A group with its own `lr` keeps it; a
    group with `fixed` keeps `peak`.

    Args:
        name: "lars", "sgd", "adamw" or "muon".
        groups: Parameter groups, as for any torch optimizer.
        weight_decay: Weight decay of groups without their own.
        momentum: Momentum of LARS, SGD and Muon.
        trust: Trust coefficient of LARS.
        weight_decay_end: If given, the decay follows half a cosine from `weight_decay` to this.
        peak: Learning rate of groups with `fixed`.
        clip: If given, the largest norm of each parameter's gradient.

    Returns:
        The optimizer, with a learning rate of 0.

    Raises:
        ValueError: If `name` is unknown.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(3))
        >>> groups = [{"params": [weight]}]
        >>> optimizer = hs.optim.build_optimizer("sgd", groups, weight_decay=1e-4, momentum=0.9, trust=0.001)
        >>> optimizer.param_groups[0]["weight_decay"]
        0.0001
    """
    decay: dict[str, Any] = {"weight_decay": weight_decay}
    if weight_decay_end is not None:
        decay = {"weight_decay": 0.0, "schedule": (weight_decay, weight_decay_end)}
    groups = [{**({} if "weight_decay" in g else decay), **g, **_fixed_rate(g, peak)} for g in groups]
    optimizer = _make_optimizer(name, groups, momentum, trust)
    if clip is not None:
        optimizer.register_step_pre_hook(partial(clip_gradients, clip))
    if weight_decay_end is not None:
        optimizer.register_step_pre_hook(scheduled_decay)
    return optimizer


def _fixed_rate(group: dict[str, Any], peak: float) -> dict[str, float]:
    if "lr" in group:
        return {"rate": group["lr"]}
    return {"rate": peak} if group.get("fixed") else {}


def _make_optimizer(
    name: Optimizer, groups: list[dict[str, Any]], momentum: float, trust: float
) -> torch.optim.Optimizer:
    match name:
        case "lars":
            adapted = [{"adapt": True, **group} for group in groups]  # also without weight decay
            return LARS(adapted, lr=0.0, momentum=momentum, trust=trust)
        case "sgd":  # LARS without adaptation
            return LARS([{**group, "adapt": False} for group in groups], lr=0.0, momentum=momentum)
        case "adamw":
            on_gpu = all(p.is_cuda for group in groups for p in group["params"])
            return torch.optim.AdamW(groups, lr=0.0, capturable=on_gpu)
        case "muon":
            return Muon(groups, lr=0.0, momentum=momentum)
    raise ValueError(f"optimizer must be one of {', '.join(get_args(Optimizer))}, got {name!r}")
