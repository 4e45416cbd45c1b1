"""Features of images by a frozen encoder, and accuracy."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hypersphere.sphere import uniformity

View = Callable[[Tensor], Tensor]  # images as bytes → input of the encoder


class Accuracy(NamedTuple):
    """In per cent."""

    top1: float
    top5: float


def accuracy(scores: Tensor, labels: Tensor) -> Accuracy:
    """Of N × classes scores; top5 is top-C where there are only C < 5 classes. A score of −∞ is no answer."""
    if not len(scores) or labels.shape != scores.shape[:1]:
        shapes = f"{tuple(scores.shape)} and {tuple(labels.shape)}"
        raise ValueError(f"scores must have one or more rows, and each a label: got shapes {shapes}")
    values, indices = scores.topk(min(5, scores.shape[1]), dim=1)
    best = (indices == labels[:, None]) & (values > -math.inf)
    return Accuracy(*(100 * int(hits.sum()) / len(labels) for hits in (best[:, 0], best.any(dim=1))))


def not_zero(features: Tensor) -> Tensor:
    """Rows of zeros are not there: to count them as even as can be would praise an encoder that is dead."""
    return features[features.any(dim=1)]


def evenness(features: Tensor) -> float:
    """Uniformity, of two rows or more that are there."""
    there = not_zero(features)
    return float(uniformity(there)) if len(there) > 1 else math.nan


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


@contextlib.contextmanager
def seldom() -> Iterator[None]:
    """Inside, cuDNN does not search for its fastest algorithms: for a few images that takes longer than it saves."""
    cudnn = torch.backends.cudnn
    with cudnn.flags(enabled=cudnn.enabled, benchmark=False, allow_tf32=cudnn.allow_tf32):
        yield


def encode(encoder: nn.Module, inputs: Tensor, precision: torch.dtype = torch.float32) -> Tensor:
    """Features in float32, by an encoder that computes in `precision`."""
    if inputs.is_cuda:
        inputs = inputs.to(precision, memory_format=torch.channels_last)
    with torch.autocast(inputs.device.type, dtype=precision, enabled=precision != torch.float32):
        features = encoder(inputs)
    if not isinstance(features, Tensor):
        raise TypeError(f"it makes a {type(features).__name__}, not a tensor of features")
    return features.float()


def extract(
    encoder: nn.Module,
    pixels: Tensor,
    view: View,
    batch: int | None = None,
    precision: torch.dtype = torch.float32,
) -> Tensor:
    """N × D features, float32, on the device of the images."""
    batch = batch or at_once(pixels, view)
    parts = list(pixels.split(batch))
    rest = len(parts[-1])
    if pixels.is_cuda and len(parts) > 1:
        parts[-1] = pixels[-batch:]  # as many at once as before: for another number cuDNN would search anew
    with frozen(encoder):
        features = [encode(encoder, view(part), precision) for part in parts]
    return torch.cat([*features[:-1], features[-1][-rest:]])


def at_once(pixels: Tensor, view: View) -> int:
    """How many images an encoder sees at once: a GPU is kept busy, a CPU's cache is not overrun."""
    most = fitting(pixels, view)
    return most if pixels.is_cuda else min(500, most)


def fitting(pixels: Tensor, view: View) -> int:
    """As many images as have two million pixels, stored or shown: what an encoder makes of them, memory can hold."""
    return max(1, 2_097_152 // max(math.prod(some.shape[2:]) for some in (pixels, view(pixels[:1]))))
