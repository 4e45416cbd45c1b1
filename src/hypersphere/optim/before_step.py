"""What an optimizer does before a step: weight decay with a schedule, half a cosine over the run; and clipping."""

from typing import Any

import torch

from hypersphere.optim.muon import Muon
from hypersphere.optim.schedules import rising


@torch.no_grad()
def scheduled_decay(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Before a step, apply λ(progress) to groups with a `schedule`.

    That is u = g + λw or, for AdamW and Muon, w ← (1 − lr · λ) w.

    λ is a tensor on the device. The optimizers' own `weight_decay` is a number, which a CUDA graph would freeze.
    """
    for group in optimizer.param_groups:
        weights = [w for w in group["params"] if w.grad is not None]
        if "schedule" not in group or not weights:
            continue
        first, last = group["schedule"]
        decay = rising(first, group["progress"], last)
        if isinstance(optimizer, torch.optim.AdamW | Muon):
            torch._foreach_mul_(weights, 1 - group["lr"] * decay)
        else:
            torch._foreach_add_([w.grad for w in weights], torch._foreach_mul(weights, decay))


@torch.no_grad()
def clip_gradients(most: float, optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Before a step, shorten gradients whose norm exceeds `most`, each parameter's by itself, as DINO does."""
    gradients = [w.grad for group in optimizer.param_groups for w in group["params"] if w.grad is not None]
    if gradients:
        norms = torch.stack(torch._foreach_norm(gradients))
        torch._foreach_mul_(gradients, list((most / norms.clamp(min=most)).unbind()))
