"""All images of some datasets, one after the other, with a name for each."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hypersphere.data.bands import in_number
from hypersphere.data.dataset import Dataset, ImageSet, UnknownData
from hypersphere.data.folder import Listing
from hypersphere.data.images import Images
from hypersphere.data.options import DataSpec
from hypersphere.data.tar_members import file_or_member
from hypersphere.data.worker_stream import Reader
from hypersphere.errors import UserError
from hypersphere.util.console import pluralize


class Everything(Reader):
    """A `Reader` of all images of some datasets, of all their splits.

    Args:
        places: The datasets, as in the option `data`; or single image files. Names of images begin with their path as
            the user wrote it.
        white: Value of white, see the option.
        channels: Number of channels to read.

    Attributes:
        closed: Folders that could not be read, with the reason.
        labels: The class of each image; "" if it is unknown.
    """

    def __init__(self, places: Sequence[str], white: int | None, channels: int) -> None:
        self.closed: dict[Path | str, str] = {}
        self.readers: list[Reader] = []
        self.folders: list[Path] = []  # in which the images of each reader are, as the user wrote it
        self.labels: list[str] = []
        for place in places:
            for part, images in _dataset(place, white).everything().items():
                if isinstance(images, Listing):
                    self.closed |= images.closed
                self.readers.append(_reader(part, images, white, channels))
                self.folders.append(Path(place if os.path.isdir(place) else os.path.dirname(place)))
                self.labels += _classes(images)
        self.starts = np.cumsum([0, *map(len, self.readers)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def _place(self, number: int) -> tuple[int, int]:
        part = int(np.searchsorted(self.starts, number, side="right")) - 1
        return part, number - int(self.starts[part])

    def name(self, number: int) -> Path | str:
        part, place = self._place(number)
        name, here = self.readers[part].name(place), self.folders[part]
        there = os.path.join(os.path.abspath(here), "")
        if not str(name).startswith(there):
            return name
        return file_or_member(str(here / str(name).removeprefix(there)))

    def read(self, number: int, side: int | None) -> Tensor:
        part, place = self._place(number)
        return self.readers[part].read(place, side)


def _dataset(place: str, white: int | None) -> Dataset:
    try:
        return Dataset.resolve(DataSpec(place, white=white))
    except UnknownData as error:
        raise UserError(str(error).replace("`data`", "images")) from None  # the commands have no such option


def _classes(images: ImageSet) -> list[str]:
    """The class of each image; "" if it is unknown."""
    if images.labels is None or not images.classes:
        return [""] * len(images)
    return [images.classes[label] if label >= 0 else "" for label in images.labels.tolist()]


def _reader(part: str, images: ImageSet, white: int | None, channels: int) -> Reader:
    if isinstance(images, Listing):
        return replace(images, white=white, bands=channels).reader
    if not isinstance(images, Images):
        reader = images.in_channels(channels).reader
        return _Numbered(part, len(reader), reader.read)
    if images.channels != channels and not {images.channels, channels} <= {1, 3}:
        raise UserError(
            f"the encoder takes images with {pluralize(channels, 'channel')}, but these have {images.channels}"
        )
    return _Numbered(part, len(images), partial(_pixels, images.pixels, channels))


def _pixels(images: Tensor, channels: int, number: int, side: int | None) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(in_number(images[number].numpy(), channels)))


class _Numbered(Reader):
    """Images named by their split and their row in it, such as train/12."""

    def __init__(self, part: str, count: int, read_row: Callable[[int, int | None], Tensor]) -> None:
        self.part, self.count, self.read_row = part, count, read_row

    def __len__(self) -> int:
        return self.count

    def name(self, number: int) -> str:
        return f"{self.part}/{number}"

    def read(self, number: int, side: int | None) -> Tensor:
        return self.read_row(number, side)
