"""Images that users hold as arrays: in a .npz or .npy file, or made by a function of theirs."""

import inspect
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hypersphere.data.memory import Images
from hypersphere.data.splits import held_out_of, test_of
from hypersphere.errors import UserError, first_line
from hypersphere.util.written import is_reference, referred_to

# part → what its images and labels may be called; MedMNIST's names, and Keras's
NAMES = {
    "train": (("images", "labels"), ("train_images", "train_labels"), ("x_train", "y_train"), ("x", "y")),
    "val": (("val_images", "val_labels"), ("x_val", "y_val")),
    "test": (("test_images", "test_labels"), ("x_test", "y_test")),
}
_LABELS = {labels for pairs in NAMES.values() for _, labels in pairs}
_KNOWN = _LABELS | {images for pairs in NAMES.values() for images, _ in pairs}


def load_arrays(name: str, holdout: str) -> tuple[Images, Images]:
    """(what is learnt from, what is held out). Without labels nothing is held out: some are looked at all the same."""
    parts = read_arrays(name)
    train = parts["train"]
    if holdout == "test":
        return train, test_of(parts, name, "arrays test_images and test_labels")
    if "val" in parts:
        return train, parts["val"]
    rest, some = held_out_of(train.labels if train.classes else None, len(train))
    return train[rest], train[some]


def read_arrays(name: str) -> dict[str, Images]:
    """By part: "train", and what there is of "val" and "test". Labels count where there are some to learn from."""
    arrays = _named(name, _made_by(name)) if is_reference(name) else _of_file(Path(name))
    pairs = _pairs(name, arrays)
    pixels = {part: in_colours(f"{name}, {images}", _array(arrays[images])) for part, (images, _) in pairs.items()}
    labels = {
        part: _checked(f"{name}, {its}", _array(arrays[its]), len(pixels[part]))
        for part, (_, its) in pairs.items()
        if its in arrays
    }
    classes = _classes(name, labels) if "train" in labels else np.empty(0)
    told = tuple(map(str, classes.tolist()))
    return {part: Images(some, _places(labels.get(part), classes, len(some)), told) for part, some in pixels.items()}


def _pairs(name: str, arrays: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """What the images and labels of each part are called here."""
    there_are = {part: [pair for pair in names if pair[0] in arrays] for part, names in NAMES.items()}
    found = {part: pairs[0] for part, pairs in there_are.items() if pairs}
    there = ", ".join(arrays) or "none"
    if "train" not in found:
        wanted = ", ".join(images for images, _ in NAMES["train"])
        raise UserError(f"{name} has no images to learn from, an array of the name {wanted} (there are {there})")
    used = {labels for pairs in there_are.values() for _, labels in pairs}
    if strays := [key for key in arrays if key in _LABELS - used]:
        raise UserError(f"{name}: {strays[0]} has no images that go by such a name (there are {there})")
    return found


def _made_by(name: str) -> Any:
    make = referred_to(name)
    try:
        inspect.signature(make).bind()
    except TypeError as error:
        raise UserError(f"{name} must be a function without arguments ({error})") from None
    try:
        return make()
    except UserError:
        raise
    except Exception as error:  # whatever that code raises
        raise UserError(f"{name} failed ({type(error).__name__}: {first_line(error)})") from error


def _of_file(path: Path) -> dict[str, Any]:
    """Arrays that have a name we know, and the names alone of others."""
    try:
        found = np.load(path, allow_pickle=False)
        if not isinstance(found, np.lib.npyio.NpzFile):
            return {"images": found}
        with found:
            return {name: found[name] if name in _KNOWN else None for name in found.files}
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} cannot be read ({first_line(error)})") from None


def _named(name: str, given: Any) -> dict[str, Any]:
    """Arrays by name, whether they came as a dict, as images with labels, or as images alone."""
    if isinstance(given, Mapping):
        return {str(key): value for key, value in given.items() if value is not None}
    if isinstance(given, tuple) and len(given) == 2:
        return {"images": given[0], "labels": given[1]}
    if isinstance(given, np.ndarray | Tensor):
        return {"images": given}
    wanted = "an array of images, (images, labels), or a dict of train_images, train_labels, test_images, …"
    raise UserError(f"{name} must give {wanted}, not {type(given).__name__}")


def _array(given: Any) -> np.ndarray:
    return given.cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)


def _checked(name: str, labels: np.ndarray, images: int) -> np.ndarray:
    """One for each image: whole numbers, or words."""
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.dtype.kind == "O" and {type(label) for label in labels.flat} in ({str}, {int}):  # a column of pandas, say
        labels = np.array(labels.tolist())
    if labels.shape != (images,) or labels.dtype.kind not in "biuU":
        wanted = f"must be whole numbers, or words, one for each of the {images} images"
        raise UserError(f"{name}: labels {wanted}, not {labels.dtype} of shape {labels.shape}")
    return labels if labels.dtype.kind == "U" else labels.astype(np.int64)


def _classes(name: str, labels: dict[str, np.ndarray]) -> np.ndarray:
    """What labels there are, in order; −1 is none. None at all where there are none to learn from."""
    if len({part.dtype.kind for part in labels.values()}) > 1:
        raise UserError(f"{name}: labels must be numbers in all of {', '.join(labels)}, or words in all")
    if labels["train"].dtype.kind == "i" and not (labels["train"] >= 0).any():
        return np.empty(0)
    found = np.unique(np.concatenate(list(labels.values())))
    return found[found >= 0] if found.dtype.kind == "i" else found


def _places(labels: np.ndarray | None, classes: np.ndarray, images: int) -> Tensor:
    """Of each label among the classes; −1: unknown."""
    places = np.full(images, -1)
    if labels is not None and len(classes):
        known = np.isin(labels, classes)
        places[known] = np.searchsorted(classes, labels[known])
    return torch.from_numpy(places)


def in_colours(name: str, pixels: np.ndarray) -> Tensor:
    """N × 3 × H × W bytes, of images in grey or in colours, whose channels come first or last."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4) or not pixels.size:
        wanted = "bytes (uint8, 0 to 255) of shape N × H × W, N × H × W × C or N × C × H × W"
        raise UserError(f"{name}: images must be {wanted}, not {pixels.dtype} of shape {pixels.shape}")
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    elif pixels.shape[3] in (1, 3):
        pixels = pixels.transpose(0, 3, 1, 2)
    if pixels.shape[1] not in (1, 3):
        raise UserError(f"{name}: images must have one channel or three, not the shape {pixels.shape}")
    found = torch.empty(len(pixels), 3, *pixels.shape[2:], dtype=torch.uint8)
    found.numpy()[...] = pixels
    return found
