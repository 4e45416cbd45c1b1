"""Schedules as functions of the step, without state."""

import math

import torch
from torch import Tensor


def scaled(base: float, batch: int) -> float:
    """Learning rate for a batch size by the linear rule, base · batch / 256.

    Args:
        base: Learning rate for 256 images.
        batch: Images per update.

    Returns:
        The learning rate.

    Example:
        >>> hs.optim.scaled(0.2, batch=1024)
        0.8
    """
    return base * batch / 256


def warmup_cosine(step: int, steps: int, warmup: int, peak: float) -> float:
    """Learning rate at a step: linear warmup to `peak`, then half a cosine to 0.

    Args:
        step: The step, from 0.
        steps: Steps of the run; the rate is 0 from there on.
        warmup: Steps of the warmup.
        peak: Largest learning rate.

    Returns:
        The learning rate.

    Example:
        >>> [hs.optim.warmup_cosine(step, steps=20, warmup=10, peak=1.0) for step in (0, 9, 15, 20)]
        [0.1, 1.0, 0.5, 0.0]
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (1 + math.cos(math.pi * min(1, (step - warmup) / max(1, steps - warmup)))) / 2


def rising(first: float, progress: float | Tensor, last: float = 1.0) -> Tensor:
    """Half a cosine from `first` at progress 0 to `last` at progress 1, such as BYOL's τ.

    Args:
        first: Value at the start.
        progress: Share of the run that is done, from 0 to 1; a tensor in a CUDA graph.
        last: Value at the end.

    Returns:
        A scalar tensor, on the device of `progress`.

    Example:
        >>> round(hs.optim.rising(0.5, progress=0.5).item(), 4)
        0.75
    """
    return last - (last - first) * (torch.cos(math.pi * torch.as_tensor(progress)) + 1) / 2
