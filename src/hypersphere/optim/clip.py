"""Gradients of limited norm."""

from typing import Any

import torch


@torch.no_grad()
def clip_gradients(most: float, optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Before a step, shorten gradients whose norm exceeds `most`, each parameter's by itself, as DINO does."""
    gradients = [w.grad for group in optimizer.param_groups for w in group["params"] if w.grad is not None]
    if gradients:
        norms = torch.stack(torch._foreach_norm(gradients))
        torch._foreach_mul_(gradients, list((most / norms.clamp(min=most)).unbind()))
