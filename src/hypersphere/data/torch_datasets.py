"""Samples of dataset objects of other libraries: `torch.utils.data.Dataset` or Hugging Face datasets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from hypersphere.data.decode import Unreadable, as_rgb
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

    def __len__(self) -> int:
        return len(self.index)

    def name(self, number: int) -> str:
        return f"sample {int(self.index[number])}"

    def read(self, number: int, side: int | None) -> Tensor:
        try:
            return pixels_of(image_of(self.dataset[int(self.index[number])]))
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
    """

    dataset: Any
    index: Tensor
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, index: Tensor) -> "Items":
        return replace(self, index=self.index[index], labels=None if self.labels is None else self.labels[index])

    @property
    def reader(self) -> ItemReader:
        return ItemReader(self.dataset, self.index)

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


def pixels_of(image: Any) -> Tensor:
    """Convert a PIL image, or an array or tensor of uint8 or floats from 0 to 1, to (3, H, W) uint8."""
    if hasattr(image, "convert") and hasattr(image, "size"):  # a PIL image
        return torch.from_numpy(np.array(as_rgb(image))).permute(2, 0, 1)
    if not isinstance(image, np.ndarray | Tensor):
        raise Unreadable(f"sample is a {type(image).__name__}, not an image, array or tensor")
    pixels = torch.as_tensor(image).cpu()
    if pixels.ndim == 2:
        pixels = pixels[None]
    if pixels.ndim != 3:
        raise Unreadable(f"image has shape {tuple(pixels.shape)}, not H × W, H × W × C or C × H × W")
    if pixels.shape[0] not in (1, 3):
        pixels = pixels.permute(2, 0, 1)
    if pixels.shape[0] not in (1, 3):
        raise Unreadable(f"image has {pixels.shape[0]} channels, not 1 or 3")
    return as_bytes(pixels).expand(3, -1, -1)


def as_bytes(pixels: Tensor) -> Tensor:
    """Convert uint8 or floats from 0 to 1 to uint8.

    Raises:
        Unreadable: If the dtype or range differs, such as after a transform that normalizes.
    """
    if pixels.dtype == torch.uint8:
        return pixels
    if pixels.is_floating_point() and pixels.min() >= 0 and pixels.max() <= 1:
        return (255 * pixels.float()).round().byte()
    raise Unreadable(f"pixels must be uint8 or floats from 0 to 1, got {_range(pixels)}: remove normalization")


def _range(pixels: Tensor) -> str:
    return f"{pixels.dtype} from {pixels.min():.3g} to {pixels.max():.3g}"


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
