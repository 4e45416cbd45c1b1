"""Samples of dataset objects of other libraries: `torch.utils.data.Dataset` or Hugging Face datasets."""

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from hypersphere.data.bands import WHITE, Unreadable, as_bands, assumed_white, brightest_of, in_number, to_bytes
from hypersphere.data.decode import ImageProperties, as_rgb, inspect_image, is_grey, read_pixels
from hypersphere.data.splits import evenly
from hypersphere.data.streamed_images import StreamedImages
from hypersphere.data.worker_stream import Reader
from hypersphere.errors import first_line

IMAGE_KEYS = ("image", "img", "images", "pixel_values", "jpg", "png", "webp")
SAMPLED = 16  # samples whose values say how many bits they have
LABEL_KEYS = ("label", "labels", "target", "fine_label", "coarse_label", "cls")


def is_item_dataset(given: Any) -> bool:
    """Whether this is a dataset of samples, of any library: it has `__getitem__` and `__len__`."""
    arrays = isinstance(given, np.ndarray | Tensor | str | bytes | Mapping | list | tuple)
    return not arrays and hasattr(given, "__getitem__") and hasattr(given, "__len__")


@contextlib.contextmanager
def _any_error_as_unreadable() -> Iterator[None]:
    """The dataset's code may raise anything."""
    try:
        yield
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"{type(error).__name__}: {first_line(error)}") from None


@dataclass(frozen=True)
class ItemReader(Reader):
    """Reads samples of the dataset by index."""

    dataset: Any
    index: Tensor  # (N,), int64: which samples
    white: int | None = None
    channels: int = 3
    assumed: int = WHITE

    def __len__(self) -> int:
        return len(self.index)

    def name(self, number: int) -> str:
        return f"sample {int(self.index[number])}"

    def read(self, number: int, side: int | None) -> Tensor:
        with _any_error_as_unreadable():
            return pixels_of(self._image(number), self.white, self.channels, self.assumed)

    def inspect(self, number: int) -> ImageProperties:
        """What a sample is."""
        with _any_error_as_unreadable():
            return properties_of(self._image(number), self.white, self.assumed)

    def _image(self, number: int) -> Any:
        return image_of(self.dataset[int(self.index[number])])


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
        assumed: Value of white in integers if `white` is None, see `assumed_white_of`.
    """

    dataset: Any
    index: Tensor
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()
    white: int | None = None
    bands: int | None = None
    assumed: int = WHITE

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, index: Tensor) -> "Items":
        return replace(self, index=self.index[index], labels=None if self.labels is None else self.labels[index])

    @property
    def reader(self) -> ItemReader:
        return ItemReader(self.dataset, self.index, self.white, self.channels, self.assumed)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the first sample.

        Raises:
            Unreadable: If it cannot be read.
        """
        properties = self.reader.inspect(0)
        return properties.channels, properties.height, properties.width

    @property
    def brightest(self) -> int:
        """The largest integer of more than 8 bits in a sample of the images; 0 if there is none."""
        found = [0]
        for number in evenly(len(self), SAMPLED).tolist():
            with contextlib.suppress(Unreadable):
                found.append(self.reader.inspect(number).brightest)
        return max(found)

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


def assumed_white_of(dataset: Any) -> int:
    """The value of white in a dataset of integers, by a sample of them, see `assumed_white`."""
    found: list[np.ndarray] = []
    for number in evenly(len(dataset), SAMPLED).tolist():
        with contextlib.suppress(Exception):  # the dataset's code may raise anything
            image = image_of(dataset[number])
            if not isinstance(image, np.ndarray | Tensor | list):
                return WHITE
            found.append(as_array(image))
        if found and (found[0].dtype.kind not in "iu" or found[0].dtype == np.uint8):
            return WHITE
    return assumed_white(*found)


def pixels_of(image: Any, white: int | None = None, channels: int = 3, assumed: int | None = None) -> Tensor:
    """Convert an image to (C, H, W) uint8.

    Args:
        image: A PIL image; the content of an image file, by itself or as "bytes" of a dictionary as Hugging Face stores
            it; or an array or tensor of bytes or other numbers (see `to_bytes`).
        white: Value of white in numbers of more than 8 bits.
        channels: Number of channels C.
        assumed: Value of white in integers if `white` is None. None: by their dtype and range, see `assumed_white`.
    """
    image = _content(image)
    if isinstance(image, bytes):
        return read_pixels(image, None, white, channels)
    numbers = _numbers(image, white)
    pixels = to_bytes(numbers, white, assumed_white(numbers) if assumed is None else assumed)
    return torch.from_numpy(np.ascontiguousarray(in_number(pixels, channels)))


def properties_of(image: Any, white: int | None = None, assumed: int = WHITE) -> ImageProperties:
    """Look at an image as `pixels_of` takes it."""
    image = _content(image)
    if isinstance(image, bytes):
        return inspect_image(io.BytesIO(image))
    numbers = _numbers(image, white)
    wide = np.asarray(image) if _is_pil(image) and image.mode.startswith("I") else numbers
    channels, height, width = to_bytes(numbers, white, assumed).shape
    return ImageProperties(channels, height, width, brightest_of(wide, assumed))


def _content(image: Any) -> Any:
    """The content of the file, if the image is one as Hugging Face stores it; else the image."""
    held = image.get("bytes") if isinstance(image, Mapping) else None
    return held if isinstance(held, bytes) else image


def _is_pil(image: Any) -> bool:
    return hasattr(image, "convert") and hasattr(image, "size")


def as_array(given: Any) -> np.ndarray:
    """A tensor, or what NumPy takes, as an array."""
    if not isinstance(given, Tensor):
        return np.asarray(given)
    return (given.float() if given.dtype == torch.bfloat16 else given).detach().cpu().numpy()


def _numbers(image: Any, white: int | None) -> np.ndarray:
    """A PIL image, array or tensor as C × H × W."""
    if _is_pil(image):
        grey, picture = is_grey(image), as_rgb(image, white)
        return np.array(picture.convert("L"))[None] if grey else np.moveaxis(np.array(picture), 2, 0)
    if not isinstance(image, np.ndarray | Tensor | list):
        raise Unreadable(f"sample is a {type(image).__name__}, not an image, array or tensor")
    numbers = as_array(image)
    if numbers.ndim == 3 and numbers.shape[0] not in (1, 3) and numbers.shape[2] in (1, 3):
        numbers = np.moveaxis(numbers, 2, 0)
    elif numbers.ndim == 3 and numbers.shape[0] in (1, 3) and numbers.size:
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
