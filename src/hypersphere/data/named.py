"""Datasets by name."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from hypersphere.data import cifar, imagenet, imagenette, stl10
from hypersphere.data.dataset import DataOptions, Dataset, Given, Holdout, Split, Voting
from hypersphere.data.fetch import Archive
from hypersphere.data.files import FILES, save_files, saved_files
from hypersphere.data.folder import Listing
from hypersphere.data.images import Images
from hypersphere.data.splits import balanced, drawn
from hypersphere.errors import UserError
from hypersphere.views import RECIPES, Recipe


@dataclass(frozen=True)
class Source:
    """A dataset that fits into memory."""

    load: Callable[[Path], tuple[Images, Images]]  # folder → (training set, test set)
    validation_per_class: int
    summary: str
    neighbours: int = 200  # of the weighted k-NN, and its temperature
    temperature: float = 0.1
    unlabelled: Callable[[Path], Tensor] | None = None  # folder → pixels of further images to learn from
    side: int | None = None  # pixels of the images, if evaluation makes them smaller


@dataclass(frozen=True)
class FileSource:
    """A dataset whose images are read from files when they are needed."""

    find: Callable[[Path], tuple[Listing, Listing]]  # folder → (training set, test set)
    validation: int  # images
    summary: str
    neighbours: int = 20
    temperature: float = 0.07


def default_root() -> Path:
    """The folder of data files: `$HYPERSPHERE_DATA`, or a folder of the user's cache."""
    return Path(os.environ.get("HYPERSPHERE_DATA") or "~/.cache/hypersphere/data").expanduser()


class NamedDataset(Dataset):
    """A dataset of the tables below."""

    def __init__(self, name: str, options: DataOptions) -> None:
        super().__init__(name, options)
        source = SOURCES.get(name) or FILE_SOURCES[name]
        self.voting = Voting(source.neighbours, source.temperature)

    @property
    def folder(self) -> Path:
        return default_root() if self.options.root is None else Path(self.options.root).expanduser()

    def takes_root(self, begun: bool) -> bool:
        return True


class NamedImages(NamedDataset):
    """One that fits into memory."""

    ignored = frozenset({"labels", "white", "size"})

    @property
    def source(self) -> Source:
        return SOURCES[self.name]

    def split(self, holdout: Holdout, run: Path | None = None) -> Split:
        train, held_out = self.source.load(self.folder)
        if holdout == "validation":
            rest, some = balanced(train.labels, self.source.validation_per_class)
            train, held_out = train[rest], train[some]
        if self.source.unlabelled is not None:
            train = train.with_unlabelled(self.source.unlabelled(self.folder))
        return Split(train, held_out)

    def pipeline(self, size: int | None) -> Recipe:
        return RECIPES[self.name]

    def stored_side(self, size: int | None) -> int:
        return self.source.side or super().stored_side(size)

    def some(self, images: int, count: int) -> Tensor:
        return torch.arange(min(count, images))  # they come in no order

    def validation_of(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        return balanced(labels, self.source.validation_per_class)


class NamedFiles(NamedDataset):
    """One whose images are read from files."""

    ignored = frozenset({"labels"})

    def split(self, holdout: Holdout, run: Path | None = None) -> Split:
        train, held_out = (holdout == self.options.holdout and self._saved(run)) or self._found(holdout)
        return Split(*(replace(some, white=self.options.white) for some in (train, held_out)))

    def split_of_job(self, holdout: Holdout, run: Path | None = None) -> Split:
        from hypersphere.distributed.collectives import from_first

        return from_first(lambda: self.split(holdout, run))

    def _saved(self, run: Path | None) -> tuple[Listing, Listing] | None:
        """The lists of a run, unless its files have moved: the dataset is the same wherever it is."""
        if run is None or not (run / FILES).is_file():
            return None
        saved = saved_files(run / FILES)
        return saved if any(map(os.path.exists, saved[0].paths)) else None

    def _found(self, holdout: Holdout) -> tuple[Listing, Listing]:
        source = FILE_SOURCES[self.name]
        train, test = source.find(self.folder)
        if holdout == "test":
            return train, test
        rest, some = drawn(len(train), source.validation)
        return train[rest], train[some]

    def save_lists(self, folder: Path, split: Split) -> None:
        if not (folder / FILES).is_file():
            save_files(folder / FILES, split.train, split.held_out)


def load_data(name: str, holdout: Holdout = "validation", root: Path | None = None) -> tuple[Images, Images]:
    """A named dataset that fits into memory, or arrays.

    Args:
        name: Of the dataset (`hypersphere data` lists them), or of a .npz file.
        holdout: "validation" holds out the class-balanced part of the training set that options are chosen on; "test"
            learns from the whole training set and holds out the test set.
        root: Folder of the data files (None: `$HYPERSPHERE_DATA`, or ~/.cache/hypersphere/data).

    Returns:
        (images to learn from, held-out images).

    Raises:
        UserError: If there is no such dataset, or if its images are files: then use `list_data`.

    Example:
        >>> train, held_out = load_data("digits")
        >>> len(train), len(held_out)
        (1137, 300)
    """
    if name in FILE_SOURCES:
        raise UserError(f"{name} is a dataset of files, not of images in memory: use list_data")
    return _split(name, holdout, root)


def list_data(name: str, root: Path | None = None, holdout: Holdout = "test") -> tuple[Listing, Listing]:
    """A named dataset of files; "validation" holds out a random part of the training set.

    Args:
        name: Of the dataset.
        root: Folder of the data files (None: `$HYPERSPHERE_DATA`, or ~/.cache/hypersphere/data).
        holdout: "validation" or "test".

    Returns:
        (files to learn from, held-out files).

    Raises:
        UserError: If there is no such dataset, or if it is held in memory: then use `load_data`.
    """
    if name in SOURCES:
        raise UserError(f"{name} is loaded into memory, not read file by file: use load_data")
    return _split(name, holdout, root)


def _split(name: str, holdout: str, root: Path | None) -> Split:
    if holdout not in ("validation", "test"):
        raise UserError(f"holdout must be validation or test, got {holdout!r}")
    return Dataset.resolve(Given(name, root=root)).split(holdout)  # type: ignore[arg-type]


def _digits(root: Path) -> tuple[Images, Images]:
    """scikit-learn's 1,797 scans of handwritten digits, 8 × 8. It defines no test set: 36 of each class are ours."""
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
        side=96,
    ),
}


def _imagenette(archive: Archive, size: str) -> FileSource:
    summary = f"Imagenette, ten classes of ImageNet, {size}"
    return FileSource(lambda root: imagenette.list_images(archive, root), 500, summary)


FILE_SOURCES = {
    "imagenet": FileSource(
        imagenet.list_images, 10_009, "ImageNet (ILSVRC-2012): download its files from image-net.org"
    ),
    "imagenette": _imagenette(imagenette.SIDE_320, "shorter side 320"),
    "imagenette-160": _imagenette(imagenette.SIDE_160, "shorter side 160"),
    "imagenette-full": _imagenette(imagenette.FULL, "full size"),
}
