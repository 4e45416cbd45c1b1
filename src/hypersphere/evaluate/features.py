"""Features of images by a frozen encoder, and accuracy."""

import contextlib
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hypersphere.data.loader import Loader, View, equal_parts, images_at_once
from hypersphere.errors import UserError
from hypersphere.sphere import uniformity


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
    batch = batch or images_at_once(pixels, view)
    with frozen(encoder):
        return torch.cat(
            [encode(encoder, view(part), precision)[-len(sample) :] for part, sample in equal_parts(pixels, batch)]
        )


def features_of(loader: Loader, encoder: nn.Module, precision: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Features of the evaluation views by the frozen encoder, and the labels; unreadable images are left out.

    Args:
        loader: The images.
        encoder: Any network that maps (B, C, H, W) to (B, D).
        precision: What the encoder computes in.

    Returns:
        Features of shape (N, D), float32, and labels of shape (N,).

    Raises:
        UserError: If no image can be read.
    """
    features, samples = [], []
    with frozen(encoder):
        for inputs, sample in loader.centers():
            features.append(encode(encoder, inputs, precision)[-len(sample) :])
            samples.append(sample)
    if not samples:
        example = next(iter(loader.unreadable), "")
        raise UserError(f"none of {len(loader)} images could be read, such as {example}")
    return torch.cat(features), loader.labels[torch.cat(samples)]
