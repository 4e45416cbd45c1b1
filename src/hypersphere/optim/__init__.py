"""Optimizers by name, and schedules of the step."""

from typing import Any, Literal, get_args

import torch

from hypersphere.optim.decay import scheduled_decay
from hypersphere.optim.lars import LARS
from hypersphere.optim.schedules import rising, scaled, warmup_cosine

__all__ = ["LARS", "Optimizer", "build_optimizer", "rising", "scaled", "warmup_cosine"]

Optimizer = Literal["lars", "sgd", "adamw"]


def build_optimizer(
    name: Optimizer,
    groups: list[dict[str, Any]],
    *,
    weight_decay: float,
    momentum: float,
    trust: float,
    weight_decay_end: float | None = None,
    peak: float = 0.0,
) -> torch.optim.Optimizer:
    """What a group says itself, such as `weight_decay` or `betas`, counts for it. Its learning rate, if it has one, or
    `peak`, if it is `fixed`, stays as it is; the loop sets that of the others, and the progress, which the decay
    follows to its end where that is another."""
    if any("decay" in group for group in groups):
        raise ValueError("a group without decay says `weight_decay` 0 and, for LARS, `adapt` False, no longer `decay`")
    decay: dict[str, Any] = {"weight_decay": weight_decay}
    if weight_decay_end is not None:
        decay = {"weight_decay": 0.0, "schedule": (weight_decay, weight_decay_end)}
    groups = [{**({} if "weight_decay" in g else decay), **g, **_rate(g, peak)} for g in groups]
    optimizer = _optimizer(name, groups, momentum, trust)
    if weight_decay_end is not None:
        optimizer.register_step_pre_hook(scheduled_decay)
    return optimizer


def _rate(group: dict[str, Any], peak: float) -> dict[str, float]:
    if "lr" in group:
        return {"rate": group["lr"]}
    return {"rate": peak} if group.get("fixed") else {}


def _optimizer(name: Optimizer, groups: list[dict[str, Any]], momentum: float, trust: float) -> torch.optim.Optimizer:
    match name:
        case "lars":
            return LARS(groups, lr=0.0, momentum=momentum, trust=trust)
        case "sgd":  # LARS without its adaptation
            return LARS([{**group, "adapt": False} for group in groups], lr=0.0, momentum=momentum)
        case "adamw":
            on_gpu = all(p.is_cuda for group in groups for p in group["params"])
            return torch.optim.AdamW(groups, lr=0.0, capturable=on_gpu)
    raise ValueError(f"optimizer must be one of {', '.join(get_args(Optimizer))}, not {name!r}")
