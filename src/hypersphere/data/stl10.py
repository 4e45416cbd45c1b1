"""STL-10 from its official binary files: 5,000 labelled training, 8,000 test and 100,000 unlabelled images, 96 × 96.

The paper trains on the unlabelled images and validates on 50 labelled training images of each class. We hold out the
same number and train on all others: the unlabelled images and the rest of the labelled ones, 4 % of the training set,
since probes take their labels from the training images. The label −1 means unknown.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hypersphere.data.fetch import Archive, fetch_archive, md5_of
from hypersphere.data.images import Images
from hypersphere.errors import UserError


@dataclass(frozen=True)
class File:
    name: str
    md5: str


@dataclass(frozen=True)
class Part:
    pixels: File  # image by image; each has its red, green and blue pixels, column by column
    labels: File  # 1 … 10, one byte each


@dataclass(frozen=True)
class Stl10:
    """The files of STL-10 and their hashes."""

    archive: Archive
    train: Part
    test: Part
    unlabelled: File


STL10 = Stl10(
    Archive(
        "stl10",
        "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
        "91f7769df0f17e558f3565bffb0c7dfb",
        "stl10_binary/test_X.bin",
    ),
    train=Part(
        File("train_X.bin", "918c2871b30a85fa023e0c44e0bee87f"), File("train_y.bin", "5a34089d4802c674881badbb80307741")
    ),
    test=Part(
        File("test_X.bin", "7f263ba9f9e0b06b93213547f721ac82"), File("test_y.bin", "36f9794fa4beb8a2c72628de14fa638e")
    ),
    unlabelled=File("unlabeled_X.bin", "5242ba1fed5e4be9e1e742405eb56ca4"),
)


def load(spec: Stl10, root: Path) -> tuple[Images, Images]:
    """(training set, test set), both labelled; downloads the files first if they are not in `root`."""
    if not (root / spec.archive.holds).is_file():
        fetch_archive(spec.archive, root)
    folder = root / spec.archive.folder
    classes = tuple(_path(folder, "class_names.txt").read_text().split())
    return _images(folder, spec.train, classes), _images(folder, spec.test, classes)


def unlabelled(spec: Stl10, root: Path) -> Tensor:
    """Pixels of the unlabelled images, N × 3 × 96 × 96, mapped from the file: only a copy takes memory."""
    return _pixels(root / spec.archive.folder, spec.unlabelled)


def _images(folder: Path, part: Part, classes: tuple[str, ...]) -> Images:
    labels = np.fromfile(_checked(folder, part.labels), dtype=np.uint8)
    return Images(_pixels(folder, part.pixels).contiguous(), torch.from_numpy(labels).long() - 1, classes)


def _pixels(folder: Path, file: File) -> Tensor:
    whole = np.memmap(
        _checked(folder, file), dtype=np.uint8, mode="c"
    )  # never written to, but torch wants a writable array
    return torch.from_numpy(whole.reshape(-1, 3, 96, 96)).transpose(2, 3)


def _checked(folder: Path, file: File) -> Path:
    path = _path(folder, file.name)
    if md5_of(path) != file.md5:
        raise UserError(f"{path} is damaged: remove {folder} to download it again")
    return path


def _path(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise UserError(f"stl10: {folder / name} is missing: remove {folder} to download it again")
    return folder / name
