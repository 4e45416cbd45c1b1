"""Stored features and their labels, as probes take them."""

import torch
from torch import Tensor


def place_among(classes: Tensor, labels: Tensor) -> Tensor:
    """Of each label among the classes, which are in order; −1: it is none of them."""
    places = torch.searchsorted(classes, labels.contiguous()).clamp_(max=len(classes) - 1)
    return torch.where(classes[places] == labels, places, -1)
