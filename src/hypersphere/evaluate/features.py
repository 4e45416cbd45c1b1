"""Features of images by a frozen encoder, and accuracy."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from hypersphere.data.loader import Loader, View, equal_parts, images_at_once
from hypersphere.data.splits import evenly
from hypersphere.data.unreadable import none_readable
from hypersphere.sphere.measures import uniformity_by_rows
from hypersphere.util.console import notify
from hypersphere.util.text import printable

STATISTICS, AT_ONCE = 1000, 32  # images for the BatchNorm statistics of an untrained encoder, and of a batch of them


class Accuracy(NamedTuple):
    """Top-1 and top-5 accuracy in per cent.

    Attributes:
        top1: Share of images whose label has the highest score.
        top5: Share of images whose label is among the five highest scores.

    Example:
        >>> import hypersphere as hs
        >>> hs.evaluate.accuracy(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1]))
        Accuracy(top1=50.0, top5=100.0)
    """

    top1: float
    top5: float


def accuracy(scores: Tensor, labels: Tensor) -> Accuracy:
    """Accuracy of classification scores.

    Args:
        scores: Scores of shape (N, C). A score of −inf is never counted as correct.
        labels: True classes of shape (N,).

    Returns:
        Top-1 and top-5 accuracy in per cent; top-C instead of top-5 if there are C < 5 classes.

    Raises:
        ValueError: If there are no rows, or not one label for each.

    Example:
        >>> import hypersphere as hs
        >>> hs.evaluate.accuracy(torch.eye(3), torch.tensor([0, 1, 0]))
        Accuracy(top1=66.66666666666667, top5=100.0)
    """
    if not len(scores) or labels.shape != scores.shape[:1]:
        shapes = f"{tuple(scores.shape)} and {tuple(labels.shape)}"
        raise ValueError(f"scores must have at least one row, and one label for each, got shapes {shapes}")
    values, indices = scores.topk(min(5, scores.shape[1]), dim=1)
    best = (indices == labels[:, None]) & (values > -math.inf)
    return Accuracy(*(100 * int(hits.sum()) / len(labels) for hits in (best[:, 0], best.any(dim=1))))


def chance_of(labels: Tensor) -> float:
    """Accuracy in per cent of always answering with the most frequent class.

    Args:
        labels: Classes of shape (N,); those below 0 are unknown and do not count.

    Returns:
        100 / C for C equally frequent classes; NaN if no class is known.

    Example:
        >>> import hypersphere as hs
        >>> hs.evaluate.chance_of(torch.tensor([0, 1, 1, 1, -1]))
        75.0
    """
    known = labels[labels >= 0]
    return 100 * int(known.bincount().max()) / len(known) if len(known) else math.nan


def nonzero_rows(features: Tensor) -> Tensor:
    """Features without rows of zeros. Zeros would count as evenly spread, and an encoder that is dead as good."""
    return features[features.any(dim=1)]


def uniformity_of_nonzero(features: Tensor) -> float:
    """Uniformity without rows of zeros; NaN if fewer than two rows remain."""
    rows = nonzero_rows(features)
    return float(uniformity_by_rows(rows)) if len(rows) > 1 else math.nan


@contextlib.contextmanager
def frozen(encoder: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients. On exit every module has the mode that it had before."""
    training = [module for module in encoder.modules() if module.training]
    encoder.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


@contextlib.contextmanager
def without_autotuning() -> Iterator[None]:
    """Turn cuDNN's search for its fastest algorithms off: for a few images it takes longer than it saves."""
    cudnn = torch.backends.cudnn
    with cudnn.flags(enabled=cudnn.enabled, benchmark=False, allow_tf32=cudnn.allow_tf32):
        yield


def encode(encoder: nn.Module, inputs: Tensor, precision: torch.dtype = torch.float32) -> Tensor:
    """Features in float32 by an encoder that computes in `precision`."""
    if inputs.is_cuda:
        inputs = inputs.to(precision, memory_format=torch.channels_last)
    with torch.autocast(inputs.device.type, dtype=precision, enabled=precision != torch.float32):
        features = encoder(inputs)
    if not isinstance(features, Tensor):
        raise TypeError(f"the encoder must return a tensor of features, got {type(features).__name__}")
    return features.float()


def extract(
    encoder: nn.Module,
    pixels: Tensor,
    view: View,
    batch: int | None = None,
    precision: torch.dtype = torch.float32,
) -> Tensor:
    """Features of images by an encoder in evaluation mode, without gradients.

    Args:
        encoder: A module that maps its input to features of shape (B, D).
        pixels: Images of shape (N, C, H, W), uint8, on the device of the encoder.
        view: Function that makes the input of the encoder from a batch of `pixels`.
        batch: Images encoded at once. By default as many as fit.
        precision: dtype in which the encoder computes.

    Returns:
        Features of shape (N, D) in float32, on the device of `pixels`.

    Raises:
        TypeError: If the encoder does not return a tensor.

    Example:
        >>> import hypersphere as hs
        >>> images = torch.randint(0, 256, (10, 1, 8, 8), dtype=torch.uint8)
        >>> hs.evaluate.extract(nn.Flatten(), images, lambda pixels: pixels / 255).shape
        torch.Size([10, 64])
    """
    batch = batch or images_at_once(pixels, view)
    with frozen(encoder):
        parts = equal_parts(pixels, batch)
        return torch.cat([encode(encoder, view(part), precision)[-len(sample) :] for part, sample in parts])


def features_of(loader: Loader, encoder: nn.Module, precision: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Features of the evaluation views of images, and their labels; unreadable images are left out.

    Args:
        loader: The images: `images.loader(pipeline, seed, device)`.
        encoder: A module that maps inputs of shape (B, C, H, W) to features of shape (B, D).
        precision: dtype in which the encoder computes.

    Returns:
        Features of shape (N, D) in float32, and labels of shape (N,), both on the device of the loader.

    Raises:
        UserError: If no image can be read.

    Example:
        >>> import hypersphere as hs
        >>> digits = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
        >>> loader = digits.split("test").train.loader(digits.pipeline(None), 0, torch.device("cpu"))
        >>> features, labels = hs.evaluate.features_of(loader, nn.Flatten())
        >>> features.shape, labels.shape
        (torch.Size([1437, 64]), torch.Size([1437]))
    """
    features, samples = features_and_samples(loader, encoder, precision)
    return features, loader.labels[samples]


def warn_of_lost_classes(labels: Tensor, readable: Tensor, names: Sequence[str]) -> None:
    """Name the classes of `labels` of which no training image is left in `readable`."""
    lost = sorted({*labels[labels >= 0].tolist()} - {*readable.tolist()})
    if lost:
        few = ", ".join(printable(names[label]) for label in lost[:3]) + ", …" * (len(lost) > 3)
        notify(f"no training image of {few} can be read, so it is never predicted")


def features_and_samples(
    loader: Loader, encoder: nn.Module, precision: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """As `features_of`, but with the indices of the images, of shape (N,), instead of their labels."""
    features, samples = [], []
    with frozen(encoder):
        for inputs, sample in loader.centers():
            features.append(encode(encoder, inputs, precision)[-len(sample) :])
            samples.append(sample)
    if not samples:
        raise none_readable(len(loader), loader.unreadable)
    return torch.cat(features), torch.cat(samples)


def put_batch_statistics(encoder: nn.Module, images: Loader) -> None:
    """Give an encoder that was never trained the BatchNorm statistics of some images.

    With the initial statistics, 0 and 1, BatchNorm would not normalize. The batches are the same for every kind of
    loader, and each is spread over all images, which folders list by class.
    """
    device = images.labels.device
    some = evenly(len(images), STATISTICS).to(device)
    batches = -(-len(some) // AT_ONCE)
    parts = (images[some[first::batches]].centers() for first in range(batches))
    inputs = (torch.cat([views[-len(sample) :] for views, sample in part]) for part in parts)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.no_grad():  # dropout draws
        update_bn(inputs, encoder)
