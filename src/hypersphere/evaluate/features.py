"""Features of images by a frozen encoder, and accuracy."""

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

View = Callable[[Tensor], Tensor]  # images as bytes → input of the encoder


class Accuracy(NamedTuple):
    """In per cent."""

    top1: float
    top5: float


def accuracy(scores: Tensor, labels: Tensor) -> Accuracy:
    """Of N × classes scores; top5 is top-C where there are only C < 5 classes."""
    best = scores.topk(min(5, scores.shape[1]), dim=1).indices == labels[:, None]
    return Accuracy(*(100 * int(hits.sum()) / len(labels) for hits in (best[:, 0], best.any(dim=1))))


@contextlib.contextmanager
def frozen(encoder: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; each module's own mode is restored after."""
    training = [module for module in encoder.modules() if module.training]
    encoder.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def extract(encoder: nn.Module, pixels: Tensor, view: View, batch: int = 500) -> Tensor:
    """N × D features, float32, on the device of the images."""
    with frozen(encoder):
        return torch.cat([encoder(view(part)).float() for part in pixels.split(batch)])
