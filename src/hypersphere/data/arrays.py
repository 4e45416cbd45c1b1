"""Images that users hold as arrays: in a .npz or .npy file, or made by a function of theirs."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hypersphere.data.memory import Images
from hypersphere.data.splits import held_out_of
from hypersphere.errors import UserError
from hypersphere.written import is_reference, referred_to

# part → what its images and labels may be called; MedMNIST's names, and Keras's
NAMES = {
    "train": (("images", "labels"), ("train_images", "train_labels"), ("x_train", "y_train"), ("x", "y")),
    "val": (("val_images", "val_labels"), ("x_val", "y_val")),
    "test": (("test_images", "test_labels"), ("x_test", "y_test")),
}


def load_arrays(name: str, holdout: str) -> tuple[Images, Images]:
    """(what is learnt from, what is held out). Without labels nothing is held out: some are looked at all the same."""
    parts = read_arrays(name)
    train, val, test = parts["train"], parts.get("val"), parts.get("test")
    if holdout == "test":
        if test is None and val is None:
            raise UserError(f"{name} has no test set: it would be arrays test_images and test_labels")
        return train, test or val  # type: ignore[return-value]
    if val is not None:
        return train, val
    rest, some = held_out_of(train.labels if train.classes else None, len(train))
    return train[rest], train[some]


def read_arrays(name: str) -> dict[str, Images]:
    """By part: "train", and what there is of "val" and "test"."""
    arrays = _named(name, referred_to(name)() if is_reference(name) else _of_file(Path(name)))
    raw = {part: found for part in NAMES if (found := _pair(arrays, NAMES[part])) is not None}
    if "train" not in raw:
        wanted, there = ", ".join(images for images, _ in NAMES["train"]), ", ".join(arrays) or "none"
        raise UserError(f"{name} has no images to learn from, an array of the name {wanted} (there are {there})")
    classes = _classes([labels for _, labels in raw.values() if labels is not None])
    return {part: _images(f"{name}, {part}", *found, classes) for part, found in raw.items()}


def _of_file(path: Path) -> Any:
    try:
        found = np.load(path, allow_pickle=False)
        return dict(found) if isinstance(found, np.lib.npyio.NpzFile) else found
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} cannot be read ({str(error).splitlines()[0]})") from None


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


def _pair(arrays: dict[str, Any], names: tuple[tuple[str, str], ...]) -> tuple[np.ndarray, np.ndarray | None] | None:
    for images, labels in names:
        if images in arrays:
            return _array(arrays[images]), _array(arrays[labels]).squeeze() if labels in arrays else None
    return None


def _array(given: Any) -> np.ndarray:
    return given.cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)


def _classes(labels: list[np.ndarray]) -> np.ndarray:
    """What labels there are, in order; −1 is none."""
    found = np.unique(np.concatenate([part.ravel() for part in labels])) if labels else np.empty(0)
    return found[found >= 0] if np.issubdtype(found.dtype, np.number) else found


def _images(name: str, pixels: np.ndarray, labels: np.ndarray | None, classes: np.ndarray) -> Images:
    numbers = np.full(len(pixels), -1)
    if labels is not None:
        if labels.shape != (len(pixels),) or labels.dtype.kind not in "iuU":
            wanted = f"whole numbers, or words, one for each of the {len(pixels)} images"
            raise UserError(f"{name}: labels must be {wanted}, not {labels.dtype} of shape {labels.shape}")
        known = np.isin(labels, classes)
        numbers[known] = np.searchsorted(classes, labels[known])
    return Images(in_colours(name, pixels), torch.from_numpy(numbers), tuple(map(str, classes.tolist())))


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
    return torch.from_numpy(np.array(pixels, order="C")).expand(-1, 3, -1, -1).contiguous()
