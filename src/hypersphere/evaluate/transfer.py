"""An encoder on another data set than it learnt from: the images of that set as the encoder takes them."""

from dataclasses import replace

import torch
from torch import Tensor

from hypersphere.data import Images
from hypersphere.views import Recipe
from hypersphere.views.ops import grey


def transferred(theirs: Recipe, own: Recipe) -> Recipe:
    """The crops of the other data set, resized and normalized as the encoder knows it from its own."""
    return replace(theirs, size=own.size, mean=own.mean, std=own.std)


def in_channels(images: Images, channels: int) -> Images:
    """Grey images made colour, or colour ones grey, where the encoder takes those."""
    if images.channels == channels:
        return images
    return replace(images, pixels=_grey(images.pixels).expand(-1, channels, -1, -1).contiguous())


def _grey(pixels: Tensor) -> Tensor:
    """Part by part: as float, all images of a set would take four times their memory."""
    return torch.cat([grey(part.float()).round().to(torch.uint8) for part in pixels.split(10_000)])
