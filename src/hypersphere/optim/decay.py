"""Weight decay that changes during a run, along half a cosine."""

from typing import Any

import torch

from hypersphere.optim.schedules import rising


@torch.no_grad()
def scheduled_decay(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Before a step: λ(progress) of the groups with a `schedule`, as u = g + λw; or, where decay is decoupled (AdamW),
    as w ← (1 − lr · λ) w. A tensor on the device, which the optimizers' own λ is not: a recorded step would freeze it.
    """
    for group in optimizer.param_groups:
        weights = [w for w in group["params"] if w.grad is not None]
        if "schedule" not in group or not weights:
            continue
        first, last = group["schedule"]
        decay = rising(first, group["progress"], last)
        if isinstance(optimizer, torch.optim.AdamW):
            torch._foreach_mul_(weights, 1 - group["lr"] * decay)
        else:
            torch._foreach_add_([w.grad for w in weights], torch._foreach_mul(weights, decay))
