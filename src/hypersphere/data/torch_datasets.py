"""Samples of dataset objects of other libraries: `torch.utils.data.Dataset` or Hugging Face datasets."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from hypersphere.data.bands import Unreadable, as_bands, in_number, to_bytes
from hypersphere.data.decode import as_rgb, is_grey, look, read_pixels
from hypersphere.data.streamed_images import StreamedImages
from hypersphere.errors import first_line

IMAGE_KEYS = ("image", "img", "images", "pixel_values", "jpg", "png", "webp")
LABEL_KEYS = ("label", "labels", "target", "fine_label", "coarse_label", "cls")


def is_item_dataset(given: Any) -> bool:
    """Whether this is a dataset of samples, of any library: it has `__getitem__` and `__len__`."""
    arrays = isinstance(given, np.ndarray | Tensor | str | bytes | Mapping | list | tuple)
    return not arrays and hasattr(given, "__getitem__") and hasattr(given, "__len__")


@dataclass(frozen=True)
class ItemReader:
    """Reads samples of the dataset by index."""

    dataset: Any
    index: Tensor  # (N,), int64: which samples
    white: int | None = None
    channels: int = 3

    def __len__(self) -> int:
        return len(self.index)

    def name(self, number: int) -> str:
        return f"sample {int(self.index[number])}"

    def read(self, number: int, side: int | None) -> Tensor:
        try:
            return pixels_of(image_of(self.dataset[int(self.index[number])]), self.white, self.channels)
        except Unreadable:
            raise
        except Exception as error:  # the dataset's code may raise anything
            raise Unreadable(f"{type(error).__name__}: {first_line(error)}") from None

    def shape(self, number: int) -> tuple[int, int, int]:
        """Channels, height and width of a sample."""
        try:
            return shape_of(image_of(self.dataset[int(self.index[number])]), self.white)
        except Unreadable:
            raise
        except Exception as error:  # the dataset's code may raise anything
            raise Unreadable(f"{type(error).__name__}: {first_line(error)}") from None

    def fingerprint(self) -> None:
        return None


@dataclass(frozen=True)
class Items(StreamedImages):
    """A selection of N samples of a dataset object.

    Attributes:
        dataset: Anything with `__len__` and `__getitem__`, whose samples are images, (image, …) or dictionaries.
        index: Tensor of shape (N,), int64: indices of the samples in the dataset.
        labels: Tensor of shape (N,), int64: indices into `classes`, −1 if unknown. None if there are no labels.
        classes: Names of the classes.
        white: Value of white in numbers of more than 8 bits.
        bands: Number of channels to read.
    """

    dataset: Any
    index: Tensor
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()
    white: int | None = None
    bands: int | None = None

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, index: Tensor) -> "Items":
        return replace(self, index=self.index[index], labels=None if self.labels is None else self.labels[index])

    @property
    def reader(self) -> ItemReader:
        return ItemReader(self.dataset, self.index, self.white, self.channels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the first sample.

        Raises:
            Unreadable: If it cannot be read.
        """
        return self.reader.shape(0)

    def contains(self, others: "Items") -> bool:
        return self.dataset is others.dataset and bool((self.index == others.index[0]).any())


def image_of(sample: Any) -> Any:
    """The image of a sample: the sample itself, the first item of a tuple, or the value of a key such as "image"."""
    if isinstance(sample, Mapping):
        for key in IMAGE_KEYS:
            if key in sample:
                return sample[key]
        raise Unreadable(f"sample has no image: its keys are {', '.join(map(str, sample))}")
    return sample[0] if isinstance(sample, tuple | list) else sample


def pixels_of(image: Any, white: int | None = None, channels: int = 3) -> Tensor:
    """Convert an image to (C, H, W) uint8.

    Args:
        image: A PIL image; the content of an image file, by itself or as "bytes" of a dictionary as Hugging Face stores
            it; or an array or tensor of bytes or other numbers (see `to_bytes`).
        white: Value of white in numbers of more than 8 bits.
        channels: Number of channels C.
    """
    if isinstance(image, Mapping) and isinstance(content := image.get("bytes"), bytes):
        image = content
    if isinstance(image, bytes):
        return read_pixels(image, None, white, channels)
    pixels = in_number(to_bytes(_numbers(image, white), white), channels)
    return torch.from_numpy(np.ascontiguousarray(pixels))


def shape_of(image: Any, white: int | None = None) -> tuple[int, int, int]:
    """Channels, height and width of an image as `pixels_of` takes it."""
    if isinstance(image, Mapping) and isinstance(content := image.get("bytes"), bytes):
        image = content
    if not isinstance(image, bytes):
        return to_bytes(_numbers(image, white), white).shape
    looks = look(io.BytesIO(image))
    return looks.channels, looks.height, looks.width


def _numbers(image: Any, white: int | None) -> np.ndarray:
    """A PIL image, array or tensor as C × H × W."""
    if hasattr(image, "convert") and hasattr(image, "size"):  # a PIL image
        grey, picture = is_grey(image), as_rgb(image, white)
        return np.array(picture.convert("L"))[None] if grey else np.moveaxis(np.array(picture), 2, 0)
    if not isinstance(image, np.ndarray | Tensor):
        raise Unreadable(f"sample is a {type(image).__name__}, not an image, array or tensor")
    numbers = image.cpu().numpy() if isinstance(image, Tensor) else image
    if numbers.ndim == 3 and numbers.shape[0] not in (1, 3) and numbers.shape[2] in (1, 3):
        numbers = np.moveaxis(numbers, 2, 0)
    elif numbers.ndim == 3 and numbers.shape[0] in (1, 3):
        return numbers
    return as_bands(numbers)


def labels_of(dataset: Any) -> tuple[Any, Sequence[str]]:
    """(labels, class names) if the dataset has them without reading images; else (None, ())."""
    if isinstance(dataset, Subset):
        labels, names = labels_of(dataset.dataset)
        return (None if labels is None else np.asarray(labels)[np.asarray(dataset.indices, dtype=np.int64)]), names
    if isinstance(dataset, ConcatDataset):
        found = [labels_of(part) for part in dataset.datasets]
        if any(labels is None for labels, _ in found) or len({tuple(names) for _, names in found}) > 1:
            return None, ()
        return np.concatenate([np.asarray(labels) for labels, _ in found]), found[0][1]
    if isinstance(dataset, TensorDataset):
        return (dataset.tensors[1].cpu().numpy() if len(dataset.tensors) > 1 else None), ()
    if hasattr(dataset, "column_names"):  # a Hugging Face dataset
        key = next((key for key in LABEL_KEYS if key in dataset.column_names), None)
        return (None, ()) if key is None else (list(dataset[key]), getattr(dataset.features[key], "names", ()))
    labels = next((getattr(dataset, name) for name in ("targets", "labels") if hasattr(dataset, name)), None)
    return labels, getattr(dataset, "classes", ())
