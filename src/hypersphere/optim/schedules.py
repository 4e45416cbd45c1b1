"""Schedules as functions of the step: nothing to save, nothing to restore."""

import math

import torch
from torch import Tensor


def scaled(base: float, batch: int) -> float:
    """The learning rate for a batch: linear, base · batch / 256."""
    return base * batch / 256


def warmup_cosine(step: int, steps: int, warmup: int, peak: float) -> float:
    """A linear rise to `peak` over `warmup` steps, then a half cosine to 0 at `steps`, and 0 from there on."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (1 + math.cos(math.pi * min(1, (step - warmup) / max(1, steps - warmup)))) / 2


def rising(first: float, progress: float | Tensor, last: float = 1.0) -> Tensor:
    """Along half a cosine: `first` at progress 0, `last` at 1."""
    return last - (last - first) * (torch.cos(math.pi * torch.as_tensor(progress)) + 1) / 2
