"""Mean and standard deviation of the channels of a dataset."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hypersphere.data.images import Images
from hypersphere.data.splits import evenly
from hypersphere.data.streamed_images import StreamedImages
from hypersphere.data.unreadable import none_readable
from hypersphere.data.worker_stream import Stream

MEASURED = 1000  # images, evenly spaced
LEAST = 1 / 255  # standard deviation, so that a constant channel does not become infinite


class Normalization(NamedTuple):
    """Mean and standard deviation of each channel, of values from 0 to 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    images: int  # that were measured

    def __str__(self) -> str:
        mean, std = (" ".join(f"{value:g}" for value in values) for values in (self.mean, self.std))
        return f"mean {mean}; std {std} (of {self.images:,} training images)"


def measure(images: Images | StreamedImages, channels: int, workers: int) -> Normalization:
    """Measure at most `MEASURED` of the images, evenly spaced, each image with equal weight.

    Raises:
        UserError: If none of the images can be read.
    """
    chosen = images[evenly(len(images), MEASURED)].in_channels(channels)
    moments = torch.cat([*_moments(chosen, workers)])  # N × 2 × C
    first, second = moments.mean(0)
    deviation = (second - first**2).clamp(min=0).sqrt().clamp(min=LEAST)
    mean, std = (tuple(round(float(value), 4) for value in values) for values in (first, deviation))
    return Normalization(mean, std, len(moments))


def _moments(images: Any, workers: int) -> Any:
    """Means of the values and of their squares, of each image and channel."""
    if isinstance(images, Images):
        return (torch.stack([_of_image(image) for image in part]) for part in images.pixels.split(256))
    lost: dict[Any, str] = {}
    stream = Stream(images.reader, _measured, side=None, workers=workers, fill=False, unreadable=lost)
    parts = [part.pixels for part in stream.every(32)]
    if not parts:
        raise none_readable(len(images), lost)
    return parts


def _of_image(image: Tensor) -> Tensor:
    values = image.flatten(1).double() / 255
    return torch.stack([values.mean(1), (values**2).mean(1)])


def _measured(image: Tensor, how: None) -> np.ndarray:
    return _of_image(image).numpy()
