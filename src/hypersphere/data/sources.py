"""Data sets by name."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from hypersphere.data import cifar, imagenet, imagenette, stl10
from hypersphere.data.arrays import load_arrays
from hypersphere.data.fetch import Archive
from hypersphere.data.folder import Listing
from hypersphere.data.memory import Images
from hypersphere.data.splits import balanced, drawn
from hypersphere.errors import UserError
from hypersphere.util.written import is_arrays

Holdout = Literal["validation", "test"]


@dataclass(frozen=True)
class Source:
    """Images that memory holds."""

    load: Callable[[Path], tuple[Images, Images]]  # folder → (training set, test set)
    validation_per_class: int
    summary: str
    neighbours: int = 200  # of the weighted k-NN, and its temperature
    temperature: float = 0.1
    unlabelled: Callable[[Path], Tensor] | None = None  # folder → pixels of images to learn from besides


@dataclass(frozen=True)
class FileSource:
    """Images that are read from their files when they are needed."""

    find: Callable[[Path], tuple[Listing, Listing]]  # folder → (training set, test set)
    validation: int  # images
    summary: str
    neighbours: int = 20
    temperature: float = 0.07


def default_root() -> Path:
    """$HYPERSPHERE_DATA, or a folder of the user's cache."""
    return Path(os.environ.get("HYPERSPHERE_DATA") or "~/.cache/hypersphere/data").expanduser()


def load_data(name: str, holdout: Holdout = "validation", root: Path | None = None) -> tuple[Images, Images]:
    """(what is learnt from, what is held out).

    "validation" holds out the class-balanced part of the training set that hyperparameters are chosen on; "test" learns
    from all of the training set and holds out the test set.
    """
    if is_arrays(name):
        return load_arrays(name, holdout)
    if name in FILE_SOURCES:
        raise UserError(f"{name} is a set of files, not of images in memory: list_data lists them")
    _check(name, SOURCES, holdout)
    source, folder = SOURCES[name], _folder(root)
    train, held_out = source.load(folder)
    if holdout == "validation":
        rest, some = balanced(train.labels, source.validation_per_class)
        train, held_out = train[rest], train[some]
    if source.unlabelled is not None:
        train = train.with_unlabelled(source.unlabelled(folder))
    return train, held_out


def list_data(name: str, root: Path | None = None, holdout: Holdout = "test") -> tuple[Listing, Listing]:
    """(what is learnt from, what is held out) of a set of files; "validation" is a random part of the training set."""
    if name in SOURCES:
        raise UserError(f"{name} is loaded into memory, not read file by file: load_data loads it")
    _check(name, FILE_SOURCES, holdout)
    source = FILE_SOURCES[name]
    train, test = source.find(_folder(root))
    if holdout == "test":
        return train, test
    rest, some = drawn(len(train), source.validation)
    return train[rest], train[some]


def _check(name: str, sources: Iterable[str], holdout: str) -> None:
    if name not in sources:
        raise UserError(f"unknown data {name!r}: choose one of {', '.join((*SOURCES, *FILE_SOURCES))}")
    if holdout not in ("validation", "test"):
        raise UserError(f"holdout must be validation or test, not {holdout!r}")


def _folder(root: Path | None) -> Path:
    return default_root() if root is None else Path(root).expanduser()


def _digits(root: Path) -> tuple[Images, Images]:
    """scikit-learn's 1,797 scans of handwritten digits, 8 × 8; it names no test set, so 36 of each class are ours."""
    from sklearn.datasets import load_digits

    scans = load_digits()
    pixels = torch.from_numpy(scans.images)[:, None] * (255 / 16)
    labels = torch.from_numpy(scans.target).long()
    images = Images(pixels.round().to(torch.uint8), labels, tuple("0123456789"))
    train, test = balanced(images.labels, per_class=36, seed=1)
    return images[train], images[test]


SOURCES = {
    "digits": Source(_digits, 30, "handwritten digits, 8 × 8, part of scikit-learn: nothing to download", 20),
    "cifar10": Source(lambda root: cifar.load(cifar.CIFAR10, root), 500, "CIFAR-10, 32 × 32"),
    "cifar100": Source(lambda root: cifar.load(cifar.CIFAR100, root), 50, "CIFAR-100, 32 × 32"),
    "stl10": Source(
        lambda root: stl10.load(stl10.STL10, root),
        50,
        "STL-10, 96 × 96, most of it without labels: 2.6 GB to download, 2.9 GB in memory",
        unlabelled=lambda root: stl10.unlabelled(stl10.STL10, root),
    ),
}


def _imagenette(archive: Archive, size: str) -> FileSource:
    summary = f"Imagenette, ten classes of ImageNet, {size}"
    return FileSource(lambda root: imagenette.list_images(archive, root), 500, summary)


FILE_SOURCES = {
    "imagenet": FileSource(
        imagenet.list_images, 10_009, "ImageNet (ILSVRC-2012): its files are to be had from image-net.org"
    ),
    "imagenette": _imagenette(imagenette.SIDE_320, "shorter side 320"),
    "imagenette-160": _imagenette(imagenette.SIDE_160, "shorter side 160"),
    "imagenette-full": _imagenette(imagenette.FULL, "as large as they are"),
}
