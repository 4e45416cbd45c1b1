"""Weight decay with a schedule: half a cosine over the run."""

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
