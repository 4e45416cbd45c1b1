"""Schedules as functions of the step: nothing to save, nothing to restore."""

import math


def scaled(base: float, batch: int) -> float:
    """The learning rate for a batch: linear, base · batch / 256."""
    return base * batch / 256


def warmup_cosine(step: int, steps: int, warmup: int, peak: float) -> float:
    """A linear rise to `peak` over `warmup` steps, then a half cosine to 0 at `steps`."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup))) / 2
