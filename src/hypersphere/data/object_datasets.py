"""Datasets from objects: arrays in a .npz or .npy file or in memory, and dataset objects of other libraries.

A user's function, `package.module:function`, may return any of these.
"""

import hashlib
import inspect
import os
import zipfile
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NotRequired, TypedDict
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from hypersphere.data.bands import (
    MOST_CHANNELS,
    WHITE,
    Unreadable,
    assumed_white,
    brightest_of,
    range_warning,
    to_bytes,
)
from hypersphere.data.dataset import Dataset, Hints, ImageSet, Split
from hypersphere.data.file_datasets import classes_in_words, others_in_words
from hypersphere.data.images import Images, fingerprint
from hypersphere.data.normalization import Normalization, measure
from hypersphere.data.options import DataSpec, Holdout
from hypersphere.data.splits import PARTS, evenly, held_out_of, test_of
from hypersphere.data.torch_datasets import Items, as_array, assumed_white_of, is_item_dataset, labels_of
from hypersphere.errors import UserError, first_line
from hypersphere.util.array_files import checked_header
from hypersphere.util.records import read_record
from hypersphere.util.references import edition, import_reference
from hypersphere.util.run_files import RUN_RECORD

# split → accepted names of (images, labels), including those of MedMNIST and Keras
NAMES = {
    "train": (("images", "labels"), ("train_images", "train_labels"), ("x_train", "y_train"), ("x", "y")),
    "val": (("val_images", "val_labels"), ("x_val", "y_val")),
    "test": (("test_images", "test_labels"), ("x_test", "y_test")),
}
_LABELS = {labels for pairs in NAMES.values() for _, labels in pairs}
_KNOWN = _LABELS | {images for pairs in NAMES.values() for images, _ in pairs}
AT_ONCE = 1024  # images converted at a time
IN_MEMORY = "in-memory-"  # prefix of the name of an object in memory
WANTED = (
    "images, (images, labels), a dictionary of train_images, train_labels, test_images, …, "
    "or a torch or Hugging Face dataset"
)


class _Began(TypedDict):
    """What run.json has of a run on an object."""

    images: NotRequired[str | None]


class ObjectDataset(Dataset):
    """Arrays or a dataset object. `make` returns them, and is called when they are first needed."""

    ignored = frozenset({"labels", "frames"})
    labels_advice = "put them into an array labels or a column label of the data, or pass (images, labels) in Python"

    def __init__(self, name: str, options: DataSpec, make: Callable[[], Any]) -> None:
        super().__init__(name, options)
        self.make = make

    @cached_property
    def parts(self) -> dict[str, Any]:
        """The training images as "train"; also "val" and "test" if there are such images."""
        return parts_of(self.name, self.make(), self.options.white)

    def everything(self) -> dict[str, Any]:
        return self.parts

    def split(self, holdout: Holdout, run: Path | None = None) -> Split:
        split = Split(*(self._in_channels(part) for part in self._split(holdout)))
        if not self.name.startswith(IN_MEMORY):
            del self.parts  # can be made again; a second copy of all images would stay in memory
        if run is not None and holdout == self.options.holdout:
            began = read_record(run / RUN_RECORD, _Began).get("images")
            if began not in (None, content_hash(split)):
                changed = "its images, labels or held-out images have changed since the run began"
                raise UserError(f"cannot resume {run} with {self.name}: {changed}")
        return split

    def _split(self, holdout: Holdout) -> Split:
        train = self.parts["train"]
        if holdout == "test":
            return Split(
                train, test_of(self.parts, self.name, "arrays test_images and test_labels, or a split named test")
            )
        if "val" in self.parts:
            return Split(train, self.parts["val"])
        rest, held_out = held_out_of(train.labels if train.classes else None, len(train))
        return Split(train[rest], train[held_out])

    def _in_channels(self, images: ImageSet) -> ImageSet:
        """The images with the channels of the run's encoder; in colour, if nothing else is said."""
        own = self.options.mean
        if isinstance(images, Images):
            return images.in_channels(len(own) or 3) if own or images.channels == 1 else images
        return images.in_channels(len(own) or 3)

    def normalization(self, channels: int) -> Normalization:
        return measure(self._split(self.options.holdout).train, channels, self.workers)

    def run_record(self, split: Split) -> dict[str, Any]:
        return {"images": content_hash(split)}

    def summary(self) -> str:
        train = self.parts["train"]
        channels, height, width = _shape(train)
        labels = classes_in_words(train)
        if isinstance(train, Items) and train.labels is None:
            in_files = os.path.exists(self.name)
            how = "name their column label" if in_files else "pass (dataset, labels)"
            labels = f"labels unknown (to use labels, {how})"
        several = f" and {channels} channels" * (channels not in (1, 3))
        found = f"{len(train):,} images of {height} × {width} pixels{several}"
        return f"{self.name}: {found}; {labels}{others_in_words(self.parts)}"

    def warning(self) -> str:
        found = range_warning(self.parts["train"].brightest, self.options.white or WHITE)
        return found and f"{self.name}: {found}"

    def recipe_hints(self) -> Hints:
        train = self.parts["train"]
        channels, *sides = _shape(train)
        return Hints(len(train), min(sides), channels)

    def edition(self) -> str:
        if self.name.startswith(IN_MEMORY):
            return ""
        if not os.path.isdir(self.name):
            return edition(self.name)
        states = sorted(Path(self.name).rglob("*.json"))  # they have the fingerprints of a saved dataset
        return hashlib.sha256(b"".join(file.read_bytes() for file in states)).hexdigest()[:8]


def _shape(images: ImageSet) -> tuple[int, int, int]:
    """Channels, height and width in pixels; those of the first sample if samples have to be read."""
    if isinstance(images, Images):
        return tuple(images.pixels.shape[1:])  # type: ignore[return-value]
    assert isinstance(images, Items)
    try:
        return images.shape
    except Unreadable as reason:
        raise UserError(f"the first sample of the dataset cannot be read: {reason}") from None


def content_hash(images: tuple[ImageSet, ...]) -> str:
    """A hash of pixels and labels; if samples have to be read, of all labels and the pixels of 16 samples.

    That of grey images is the same as in colour.
    """
    if all(isinstance(part, Images) for part in images):
        coloured = (part.in_channels(3) if part.channels == 1 else part for part in images)
        return fingerprint(coloured)  # type: ignore[arg-type]
    digest = hashlib.sha256()
    for part in images:
        assert isinstance(part, Items)
        digest.update(part.index.numpy().tobytes())
        digest.update(b"" if part.labels is None else part.labels.numpy().tobytes())
        reader = (part.in_channels(3) if part.channels == 1 else part).reader
        for number in evenly(len(part), 16).tolist():
            try:
                digest.update(reader.read(number, None).numpy().tobytes())
            except Unreadable as reason:
                digest.update(str(reason).encode())
    return digest.hexdigest()[:12]


_GIVEN: WeakValueDictionary[str, ObjectDataset] = WeakValueDictionary()  # by name; kept as long as they are in use


def remember_object(given: Any, white: int | None = None) -> ObjectDataset:
    """Make a dataset of an object in memory; `resolve` finds it by its name as long as it is in use.

    The name is a hash of the content, so that a resumed run can check that it gets the same images.
    """
    parts = parts_of("data", given, white)
    name = IN_MEMORY + content_hash(tuple(parts.values()))
    return _GIVEN.setdefault(name, _with_parts(name, DataSpec(name, white=white), lambda: given, parts))


def remembered(name: str, options: DataSpec) -> ObjectDataset:
    """The dataset that `remember_object` gave this name. If there is none, using its images raises a UserError."""
    known = _GIVEN.get(name)
    if known is None:
        return ObjectDataset(name, options, lambda: _forgotten(name))
    return _with_parts(name, options, lambda: known.make(), known.parts)  # `known` lives as long as this one


def _forgotten(name: str) -> Any:
    advice = "pass it again in Python: hs.load_run(RUN, data=…) or hs.pretrain(resume=RUN, data=…)"
    raise UserError(f"{name} was an object in memory: {advice}")


def _with_parts(name: str, options: DataSpec, make: Callable[[], Any], parts: dict[str, Any]) -> ObjectDataset:
    dataset = ObjectDataset(name, options, make)
    dataset.parts = parts
    return dataset


def is_object(given: Any) -> bool:
    """Whether `parts_of` may accept this object: images in memory or a dataset object."""
    return isinstance(given, np.ndarray | Tensor | Mapping | tuple) or is_item_dataset(given)


def parts_of(name: str, given: Any, white: int | None = None) -> dict[str, Any]:
    """Images by split: "train", and "val" and "test" if there are such images.

    Args:
        name: Name of the dataset, for messages.
        given: One of the kinds in `WANTED`.
        white: Value of white in numbers of more than 8 bits.

    Raises:
        UserError: If `given` is none of the kinds in `WANTED`, or lacks training images.
    """
    if is_item_dataset(given):
        return _item_parts(name, {"train": given}, white)
    if isinstance(given, tuple) and len(given) == 2 and is_item_dataset(given[0]):
        return _item_parts(name, {"train": given[0]}, white, given[1])
    if isinstance(given, Mapping) and given and all(map(is_item_dataset, given.values())):
        parts = {PARTS.get(str(key).lower(), ""): dataset for key, dataset in given.items()}
        if "train" not in parts:
            raise UserError(f"{name} has no split train: found {', '.join(map(str, given))}")
        return _item_parts(name, {part: dataset for part, dataset in parts.items() if part}, white)
    return _array_parts(name, _named(name, given), white)


def _item_parts(name: str, datasets: Mapping[str, Any], white: int | None, given: Any = None) -> dict[str, Items]:
    """Samples of each split. Labels are used only if the training samples have labels: `given`, or their own."""
    if empty := [part for part, dataset in datasets.items() if not len(dataset)]:
        raise UserError(f"{name} has no samples ({empty[0]})")
    known = {part: labels_of(dataset) if given is None else (given, ()) for part, dataset in datasets.items()}
    labels = {
        part: _checked(f"{name}, {part}", as_array(values), len(datasets[part]))
        for part, (values, _) in known.items()
        if values is not None
    }
    index = {part: torch.arange(len(dataset)) for part, dataset in datasets.items()}
    assumed = assumed_white_of(datasets["train"])
    if "train" not in labels:
        return {part: Items(dataset, index[part], white=white, assumed=assumed) for part, dataset in datasets.items()}
    classes, names = _classes(name, labels), known["train"][1]
    class_names = tuple(map(str, classes.tolist()))
    if names and classes.dtype.kind == "i" and len(classes) and int(classes.max()) < len(names):
        classes, class_names = np.arange(len(names)), tuple(map(str, names))
    return {
        part: Items(
            dataset, index[part], _places(labels.get(part), classes, len(dataset)), class_names, white, assumed=assumed
        )
        for part, dataset in datasets.items()
    }


def _array_parts(name: str, arrays: dict[str, Any], white: int | None) -> dict[str, Images]:
    """Images of each split. Labels are used only if the training images have labels."""
    pairs = _pairs(name, arrays)
    numbers = {part: as_array(arrays[images]) for part, (images, _) in pairs.items()}
    assumed = assumed_white(*numbers.values())
    pixels = {part: as_images(f"{name}, {pairs[part][0]}", array, white, assumed) for part, array in numbers.items()}
    if len(several := {x.shape[1] for x in pixels.values()}) > 1:
        raise UserError(f"{name}: {' and '.join(pixels)} must have the same number of channels, got {sorted(several)}")
    labels = {
        part: _checked(f"{name}, {its}", as_array(arrays[its]), len(pixels[part]))
        for part, (_, its) in pairs.items()
        if its in arrays
    }
    classes = _classes(name, labels) if "train" in labels else np.empty(0)
    names = tuple(map(str, classes.tolist()))
    return {
        part: Images(x, _places(labels.get(part), classes, len(x)), names, brightest_of(numbers[part], assumed))
        for part, x in pixels.items()
    }


def _pairs(name: str, arrays: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """The names of the arrays of images and labels of each split."""
    matching = {part: [pair for pair in names if pair[0] in arrays] for part, names in NAMES.items()}
    found = {part: pairs[0] for part, pairs in matching.items() if pairs}
    there = ", ".join(arrays) or "none"
    if "train" not in found:
        wanted = ", ".join(images for images, _ in NAMES["train"])
        raise UserError(f"{name} has no training images: name the array one of {wanted} (found {there})")
    used = {labels for pairs in matching.values() for _, labels in pairs}
    if strays := [key for key in arrays if key in _LABELS - used]:
        raise UserError(f"{name}: {strays[0]} has no matching array of images (found {there})")
    return found


def made_by(name: str) -> Any:
    """The return value of the user's function."""
    make = import_reference(name)
    try:
        inspect.signature(make).bind()
    except TypeError as error:
        raise UserError(f"{name} must be a function that takes no arguments ({error})") from None
    try:
        return make()
    except UserError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise UserError(f"{name} failed ({type(error).__name__}: {first_line(error)})") from error


def arrays_of_file(path: Path) -> dict[str, Any]:
    """The arrays with a known name; an empty tuple for each other name."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)  # so that only the header is read
        if not isinstance(found, np.lib.npyio.NpzFile):
            checked_header(path)
            return {"images": np.array(found)}
        with found:
            known = [name for name in found.files if name in _KNOWN]
            for name in known:
                checked_header(path, name)
            return {name: found[name] if name in known else () for name in found.files}
    except FileNotFoundError:
        raise UserError(f"file not found: {path}") from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} cannot be read ({first_line(error)})") from None


def _named(name: str, given: Any) -> dict[str, Any]:
    """Arrays by name, from a dictionary, (images, labels) or images only."""
    if isinstance(given, Mapping):
        return {str(key): value for key, value in given.items() if value is not None}
    if isinstance(given, tuple) and len(given) == 2:
        return {"images": given[0], "labels": given[1]}
    if isinstance(given, np.ndarray | Tensor):
        return {"images": given}
    raise UserError(f"{name} must be {WANTED}, got {type(given).__name__}")


def _checked(name: str, labels: np.ndarray, images: int) -> np.ndarray:
    """Labels of shape (images,): int64 or strings."""
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.dtype.kind == "O" and {type(label) for label in labels.flat} in (
        {str},
        {int},
    ):  # such as a column of pandas
        labels = np.array(labels.tolist())
    if labels.shape != (images,) or labels.dtype.kind not in "biuU":
        wanted = f"integers or strings, one for each of the {images} images"
        raise UserError(f"{name}: labels must be {wanted}, got {labels.dtype} of shape {labels.shape}")
    return labels if labels.dtype.kind == "U" else labels.astype(np.int64)


def _classes(name: str, labels: dict[str, np.ndarray]) -> np.ndarray:
    """The distinct labels, sorted, without −1. Empty if no training image has a label."""
    if len({part.dtype.kind for part in labels.values()}) > 1:
        raise UserError(f"{name}: labels must be integers in all of {', '.join(labels)}, or strings in all")
    if labels["train"].dtype.kind == "i" and not (labels["train"] >= 0).any():
        return np.empty(0)
    found = np.unique(np.concatenate(list(labels.values())))
    return found[found >= 0] if found.dtype.kind == "i" else found


def _places(labels: np.ndarray | None, classes: np.ndarray, images: int) -> Tensor:
    """The index of each label in `classes`; −1 if unknown."""
    places = np.full(images, -1)
    if labels is not None and len(classes):
        known = np.isin(labels, classes)
        places[known] = np.searchsorted(classes, labels[known])
    return torch.from_numpy(places)


def as_images(name: str, pixels: np.ndarray, white: int | None = None, assumed: int | None = None) -> Tensor:
    """Convert images, channels first or last, to (N, C, H, W) uint8.

    Args:
        name: Name of the images, for messages.
        pixels: Images of shape (N, H, W), (N, H, W, C) or (N, C, H, W), of any dtype that `to_bytes` takes.
        white: Value of white in numbers of more than 8 bits.
        assumed: Value of white in integers if `white` is None. None: by their dtype and range, see `assumed_white`.

    Raises:
        UserError: If they are no images, or their values have no meaning.
    """
    shape = f"{pixels.dtype} of shape {pixels.shape}"
    if pixels.dtype.kind not in "biuf" or pixels.ndim not in (3, 4) or not pixels.size:
        wanted = "bytes, integers or floats from 0 to 1, of shape N × H × W, N × H × W × C or N × C × H × W"
        raise UserError(f"{name}: images must be {wanted}, got {shape}")
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    elif pixels.shape[3] in (1, 3) or (pixels.shape[1] not in (1, 3) and pixels.shape[3] < pixels.shape[1]):
        pixels = pixels.transpose(0, 3, 1, 2)
    if pixels.shape[1] > MOST_CHANNELS:
        raise UserError(f"{name}: images must have at most {MOST_CHANNELS} channels, got {shape}")
    _check_finite(name, pixels)
    assumed = assumed_white(pixels) if assumed is None else assumed
    found = torch.empty(pixels.shape, dtype=torch.uint8)
    for start in range(0, len(pixels), AT_ONCE):  # floats of all images would take several times their memory
        try:
            part = np.ascontiguousarray(pixels[start : start + AT_ONCE])
            found[start : start + AT_ONCE] = torch.from_numpy(to_bytes(part, white, assumed))
        except Unreadable as reason:
            raise UserError(f"{name}: {reason}") from None
    return found


def _check_finite(name: str, pixels: np.ndarray) -> None:
    if pixels.dtype.kind != "f":
        return
    parts = [pixels[start : start + AT_ONCE] for start in range(0, len(pixels), AT_ONCE)]
    finite = np.concatenate([np.isfinite(part).all(axis=(1, 2, 3)) for part in parts])
    if lost := np.flatnonzero(~finite).tolist():
        found = f"{len(lost):,} of {len(pixels):,} images have NaN or infinite pixels, such as image {lost[0]}"
        raise UserError(f"{name}: {found}: replace these pixels, or leave these images out")
