"""All images of a dataset, one after the other, with a name for each."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hypersphere.data.bands import in_number
from hypersphere.data.dataset import Dataset, ImageSet
from hypersphere.data.folder import Listing
from hypersphere.data.images import Images
from hypersphere.data.tar_members import file_or_member
from hypersphere.data.worker_stream import Reader
from hypersphere.errors import UserError


class Everything:
    """A `Reader` of all images of a dataset, of all its splits.

    Args:
        dataset: The dataset.
        channels: Number of channels to read.
        given: The path of the dataset as the user wrote it: names of images begin with it.

    Attributes:
        closed: Folders that could not be read, with the reason.
    """

    def __init__(self, dataset: Dataset, channels: int, given: str) -> None:
        parts = dataset.everything()
        self.closed = {k: v for part in parts.values() if isinstance(part, Listing) for k, v in part.closed.items()}
        white = dataset.options.white
        self.readers = [_reader(part, images, white, channels) for part, images in parts.items()]
        self.here = Path(given if os.path.isdir(given) else os.path.dirname(given))
        self.there = os.path.join(os.path.abspath(self.here), "")
        self.starts = np.cumsum([0, *map(len, self.readers)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def _place(self, number: int) -> tuple[Reader, int]:
        part = int(np.searchsorted(self.starts, number, side="right")) - 1
        return self.readers[part], number - int(self.starts[part])

    def name(self, number: int) -> Path | str:
        reader, place = self._place(number)
        name = reader.name(place)
        if not str(name).startswith(self.there):
            return name
        return file_or_member(str(self.here / str(name).removeprefix(self.there)))

    def read(self, number: int, side: int | None) -> Tensor:
        reader, place = self._place(number)
        return reader.read(place, side)

    def fingerprint(self) -> None:
        return None


def _reader(part: str, images: ImageSet, white: int | None, channels: int) -> Reader:
    if isinstance(images, Images):
        return _Numbered(part, images, channels)
    if isinstance(images, Listing):
        return replace(images, white=white, bands=channels).reader
    return _Named(part, images.in_channels(channels).reader)


class _Numbered:
    """Images in memory, named by their split and their row in it, such as train/12."""

    def __init__(self, part: str, images: Images, channels: int) -> None:
        self.part, self.pixels, self.channels = part, images.pixels, channels
        if images.channels != channels and not {images.channels, channels} <= {1, 3}:
            raise UserError(f"the encoder takes images with {channels} channels, but these have {images.channels}")

    def __len__(self) -> int:
        return len(self.pixels)

    def name(self, number: int) -> str:
        return f"{self.part}/{number}"

    def read(self, number: int, side: int | None) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(in_number(self.pixels[number].numpy(), self.channels)))

    def fingerprint(self) -> None:
        return None


class _Named:
    """The samples of a split of a dataset object, named by their row, such as test/3."""

    def __init__(self, part: str, reader: Reader) -> None:
        self.part, self.reader = part, reader

    def __len__(self) -> int:
        return len(self.reader)

    def name(self, number: int) -> str:
        return f"{self.part}/{number}"

    def read(self, number: int, side: int | None) -> Tensor:
        return self.reader.read(number, side)

    def fingerprint(self) -> None:
        return None
