"""Data sets by name."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from hypersphere.data import cifar
from hypersphere.data.memory import Images
from hypersphere.data.splits import balanced
from hypersphere.errors import UserError

Holdout = Literal["validation", "test"]


@dataclass(frozen=True)
class Source:
    load: Callable[[Path], tuple[Images, Images]]  # folder → (training set, test set)
    validation_per_class: int
    summary: str
    neighbours: int = 200  # of the weighted k-NN, and its temperature
    temperature: float = 0.1


def default_root() -> Path:
    """$HYPERSPHERE_DATA, or a folder of the user's cache."""
    return Path(os.environ.get("HYPERSPHERE_DATA") or Path.home() / ".cache" / "hypersphere" / "data")


def load_data(name: str, holdout: Holdout = "validation", root: Path | None = None) -> tuple[Images, Images]:
    """(what is learnt from, what is held out).

    "validation" holds out the class-balanced part of the training set that hyperparameters are chosen on; "test" learns
    from all of the training set and holds out the test set.
    """
    if name not in SOURCES:
        raise UserError(f"unknown data {name!r}: choose one of {', '.join(SOURCES)}")
    if holdout not in ("validation", "test"):
        raise UserError(f"holdout must be validation or test, not {holdout!r}")
    source = SOURCES[name]
    train, test = source.load(default_root() if root is None else Path(root).expanduser())
    if holdout == "test":
        return train, test
    rest, held_out = balanced(train.labels, source.validation_per_class)
    return train[rest], train[held_out]


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
}
