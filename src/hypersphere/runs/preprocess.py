"""Images of any kind as an encoder takes them, and the features that it gives: one path for runs and for exports."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from hypersphere.config import Config
from hypersphere.data import Dataset, Images
from hypersphere.data.bands import MOST_CHANNELS, Unreadable
from hypersphere.data.decode import read_pixels
from hypersphere.data.loader import center_view
from hypersphere.data.object_datasets import as_images
from hypersphere.data.tar_members import exists, file_or_member, opened
from hypersphere.data.torch_datasets import as_array, pixels_of
from hypersphere.errors import UserError
from hypersphere.evaluate import extract
from hypersphere.nn.levels import AtLevel, Level
from hypersphere.runs.build import view_pipeline
from hypersphere.util.records import check_record
from hypersphere.util.text import printable
from hypersphere.views import Augmentation, ViewPipeline
from hypersphere.views.crops import middle

AT_ONCE = 64  # images decoded before they are encoded
LARGEST = 16_384  # pixels of a side

Picture = Any  # a path, a PIL image, the bytes of an image file, or a tensor or array C × H × W, H × W × C or H × W


class PreprocessRecord(TypedDict):
    """`Preprocess` as JSON has it."""

    side: int
    size: int
    mean: list[float]
    std: list[float]
    resize: int | None
    crop: int | None
    white: NotRequired[int | None]  # not in older files


@dataclass(frozen=True)
class Preprocess:
    """Turns an image into the normalized input of an encoder, as evaluation does.

    Attributes:
        side: Side in pixels to which the centre square of an image is first resized, in uint8.
        size: Side of the encoder's input in pixels.
        mean: Mean of each channel, subtracted from values between 0 and 1.
        std: Standard deviation of each channel.
        resize: Side to which the image is resized next, if any.
        crop: Side of the centre crop that is kept, if any.
        white: Value of white in images of more than 8 bits; None is 65,535, and 1 for floats.
    """

    side: int
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resize: int | None
    crop: int | None
    white: int | None = None

    def __post_init__(self) -> None:
        sides = {"side": self.side, "size": self.size, "resize": self.resize, "crop": self.crop}
        for name, value in sides.items():
            if value is not None and not 0 < value <= LARGEST:
                raise ValueError(f"{name} must be from 1 to {LARGEST} pixels, got {value}")
        if not 0 < len(self.mean) == len(self.std) <= MOST_CHANNELS:
            raise ValueError(f"mean and std must have a number for each channel, got {self.mean} and {self.std}")
        if not all(abs(mean) < 1e6 for mean in self.mean) or not all(1e-6 < std < 1e6 for std in self.std):
            raise ValueError(f"mean and std must be finite, and std above 0, got {self.mean} and {self.std}")

    @staticmethod
    def of(config: Config) -> "Preprocess":
        recipe, side = view_pipeline(config), Dataset.resolve(config).stored_side(config.size)
        return Preprocess(side, recipe.size, recipe.mean, recipe.std, recipe.resize, recipe.crop, config.white)

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> "Preprocess":
        """The preprocessing that a card or a file of embeddings describes. Raises a ValueError if it is damaged."""
        checked = check_record(saved, PreprocessRecord)
        known: dict[str, Any] = {name: checked.get(name) for name in PreprocessRecord.__annotations__}
        return Preprocess(**{**known, "mean": tuple(checked["mean"]), "std": tuple(checked["std"])})

    def __call__(self, picture: Picture) -> Tensor:
        """Input of the encoder, of shape (C, size, size).

        A JPEG file may be decoded at a smaller size, as in evaluation; a PIL image is not.
        """
        return self.view(torch.from_numpy(self.pixels(self.opened(picture)))[None])[0]

    @property
    def channels_read(self) -> int:
        """Channels of an image before it is resized: images for a grey encoder become grey after that."""
        return 3 if len(self.mean) == 1 else len(self.mean)

    def opened(self, picture: Picture) -> Tensor:
        """The image as uint8 of shape (C, H, W)."""
        channels = self.channels_read
        if isinstance(picture, str | os.PathLike):
            picture = os.fspath(picture)
            if isinstance(file := file_or_member(picture), Path) and not exists(file):
                raise UserError(f"{printable(picture)} does not exist")
        try:
            if isinstance(picture, str):
                return read_pixels(opened(file_or_member(picture)), self.side, self.white, channels)
            if isinstance(picture, bytes | Tensor | np.ndarray) or _is_pil(picture):
                return pixels_of(picture, self.white, channels)
        except Unreadable as reason:
            raise UserError(f"{_called(picture)} cannot be read ({reason})") from None
        kinds = "a path, a PIL image, the bytes of an image file, or an array or tensor C × H × W or H × W × C"
        raise UserError(f"an image must be {kinds}, got {type(picture).__name__}")

    def pixels(self, image: Tensor, how: None = None) -> np.ndarray:
        """uint8 pixels of shape (C, side, side) from pixels of shape (C, H, W)."""
        return np.array(middle(image, self.side))  # a copy, since the memory of PIL is read-only

    def view(self, pixels: Tensor) -> Tensor:
        """Input of the encoder, of shape (N, C, size, size), from uint8 pixels of shape (N, C, side, side)."""
        images = Images(pixels, torch.empty(0), ())
        return center_view(self.pipeline())(images.in_channels(len(self.mean)).pixels)

    def pipeline(self, probe: Augmentation | None = None) -> ViewPipeline:
        """The views of a loader that shows images as this does; `probe` is the augmentation for training a probe."""
        return ViewPipeline(self.size, self.mean, self.std, (), probe or Augmentation(), self.resize, self.crop)


def _is_pil(picture: Any) -> bool:
    from PIL import Image

    return isinstance(picture, Image.Image)


def _called(picture: Picture) -> str:
    """An image in messages."""
    if isinstance(picture, str):
        return printable(picture)
    if isinstance(picture, Tensor | np.ndarray):
        return f"an image of {picture.dtype} and shape {tuple(picture.shape)}"
    return f"an image given as {type(picture).__name__}"


def _accepted(channels: int) -> tuple[int, ...]:
    """Numbers of channels that images may have for an encoder of so many: grey and colour become each other."""
    return (1, 3) if channels in (1, 3) else (channels,)


def encode_pictures(
    encoder: nn.Module,
    preprocess: Preprocess,
    pictures: Tensor | np.ndarray | Iterable[Picture],
    level: Level | None = None,
    pooled: bool = False,
) -> Tensor:
    """Features of images on the device of the encoder, in float32.

    Args:
        encoder: The encoder.
        preprocess: Its preprocessing.
        pictures: Paths, PIL images, contents of image files, or tensors or arrays of shape (C, H, W), (H, W, C) or
            (H, W); or one tensor or array of N of them. Numbers are those that `hs.pretrain` takes.
        level: Part of the encoder whose output is returned, as in `AtLevel`. None: the features, of shape (N, D).
        pooled: Whether to average the output of `level` over positions.

    Raises:
        UserError: If an image cannot be read, or the encoder does not have the level.
    """
    if isinstance(pictures, str | bytes | os.PathLike) or _is_pil(pictures):
        raise UserError("encode() needs a list of images, got a single one: pass [image]")
    network = encoder if level is None else AtLevel(encoder, level, pooled)
    side, channels = preprocess.side, len(preprocess.mean)
    if isinstance(pictures, Tensor | np.ndarray) and pictures.ndim in (3, 4) and len(pictures):
        pictures = pixels = _batch(pictures, preprocess)
        if pixels.shape[1] in _accepted(channels) and pixels.shape[2:] == (side, side):
            return encode_pixels(network, preprocess, pixels)
    found: list[Tensor] = []
    images = (preprocess.opened(picture) for picture in pictures)
    while some := [preprocess.pixels(image) for image in islice(images, AT_ONCE)]:
        found.append(encode_pixels(network, preprocess, torch.from_numpy(np.stack(some))))
    blank = torch.zeros(1, channels, side, side, dtype=torch.uint8)
    return torch.cat(found) if found else encode_pixels(network, preprocess, blank)[:0]


def _batch(pictures: Tensor | np.ndarray, preprocess: Preprocess) -> Tensor:
    """Images in one array as uint8 of shape (N, C, H, W), converted as those that are trained on."""
    side, accepted, shape = preprocess.side, _accepted(len(preprocess.mean)), tuple(pictures.shape)
    if len(shape) == 3 and shape[0] > 1 and (shape[0] in accepted or shape[2] in accepted):
        raise UserError(
            f"encode() got an array of shape {shape}, which may be one image or grey ones: pass images[None] if it is "
            "one, or images[:, None]"
        )
    if isinstance(pictures, Tensor) and pictures.dtype == torch.uint8 and shape[2:] == (side, side):
        return pictures  # which may be on a GPU
    return as_images("images", as_array(pictures), preprocess.white)


def encode_pixels(encoder: nn.Module, preprocess: Preprocess, pixels: Tensor) -> Tensor:
    """Features of uint8 pixels of shape (N, C, side, side), on the device of the encoder."""
    device = device_of(encoder)
    return extract(encoder, pixels, lambda part: preprocess.view(part.to(device, non_blocking=True)))


def device_of(encoder: nn.Module) -> torch.device:
    """The device of the weights; the CPU if there are none."""
    weights = next(encoder.parameters(), None)
    return torch.device("cpu") if weights is None else weights.device
