"""Optimizers by name, and schedules of the step."""

from typing import Any, Literal, get_args

import torch

from hypersphere.optim.lars import LARS
from hypersphere.optim.schedules import scaled, warmup_cosine

__all__ = ["LARS", "Optimizer", "build_optimizer", "scaled", "warmup_cosine"]

Optimizer = Literal["lars", "sgd", "adamw"]


def build_optimizer(
    name: Optimizer, groups: list[dict[str, Any]], *, weight_decay: float, momentum: float, trust: float
) -> torch.optim.Optimizer:
    """`groups` say by `decay` whether they are decayed (and, by LARS, adapted); the loop sets the learning rate."""
    groups = [
        {"params": g["params"], "weight_decay": weight_decay if g["decay"] else 0.0, "adapt": g["decay"]}
        for g in groups
    ]
    match name:
        case "lars":
            return LARS(groups, lr=0.0, momentum=momentum, trust=trust)
        case "sgd":  # LARS without its adaptation
            return LARS([{**group, "adapt": False} for group in groups], lr=0.0, momentum=momentum)
        case "adamw":
            on_gpu = all(p.is_cuda for group in groups for p in group["params"])
            return torch.optim.AdamW(groups, lr=0.0, capturable=on_gpu)
    raise ValueError(f"optimizer must be one of {', '.join(get_args(Optimizer))}, not {name!r}")
