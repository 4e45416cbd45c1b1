"""Datasets known by name: `SOURCES` fit into memory, `FILE_SOURCES` are read from image files."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hypersphere.data import cifar, imagenet, imagenette, stl10
from hypersphere.data.dataset import USUAL_SIZE, Dataset, Split, Voting
from hypersphere.data.fetch import Archive
from hypersphere.data.file_datasets import FILES, ListedDataset, saved_files
from hypersphere.data.folder import Listing
from hypersphere.data.images import Images
from hypersphere.data.options import DataSpec, Holdout
from hypersphere.data.splits import balanced, drawn
from hypersphere.errors import UserError
from hypersphere.views import PIPELINES, ViewPipeline, folder_pipeline


@dataclass(frozen=True)
class Source:
    """A dataset that fits into memory."""

    load: Callable[[Path], tuple[Images, Images]]  # folder → (training set, test set)
    validation_per_class: int
    summary: str
    neighbours: int = 200  # k and temperature of the weighted k-NN classifier
    temperature: float = 0.1
    unlabelled: Callable[[Path], Tensor] | None = None  # folder → pixels of additional training images
    side: int | None = None  # pixels of the images, if evaluation makes them smaller
    embedded: bool = False  # whether there are no data files, because a package has the images or code draws them


@dataclass(frozen=True)
class FileSource:
    """A dataset whose images are read from files when they are needed."""

    find: Callable[[Path], tuple[Listing, Listing]]  # folder → (training set, test set)
    validation: int  # number of held-out validation images
    summary: str
    neighbours: int = 20
    temperature: float = 0.07


def default_root() -> Path:
    """Default folder of dataset files.

    Returns:
        `$HYPERSPHERE_DATA` if it is set, else ~/.cache/hypersphere/data.

    Example:
        >>> hs.data.default_root().is_absolute()
        True
    """
    return Path(os.environ.get("HYPERSPHERE_DATA") or "~/.cache/hypersphere/data").expanduser()


class NamedDataset(Dataset):
    """A dataset in `SOURCES` or `FILE_SOURCES`."""

    has_recipe = True

    def __init__(self, name: str, options: DataSpec) -> None:
        super().__init__(name, options)
        source = SOURCES.get(name) or FILE_SOURCES[name]
        self.voting = Voting(source.neighbours, source.temperature)

    @property
    def folder(self) -> Path:
        return default_root() if self.options.root is None else Path(self.options.root).expanduser()

    def takes_root(self, begun: bool) -> bool:
        return True


class NamedImages(NamedDataset):
    """A named dataset that fits into memory."""

    ignored = frozenset({"labels", "white", "mean", "std", "frames", "size"})

    @property
    def source(self) -> Source:
        return SOURCES[self.name]

    def split(self, holdout: Holdout, run: Path | None = None) -> Split:
        train, held_out = self.source.load(self.folder)
        if holdout == "validation":
            rest, validation = balanced(train.labels, self.source.validation_per_class)
            train, held_out = train[rest], train[validation]
        if self.source.unlabelled is not None:
            train = train.with_unlabelled(self.source.unlabelled(self.folder))
        return Split(train, held_out)

    def pipeline(self, size: int | None) -> ViewPipeline:
        return PIPELINES[self.name]

    def stored_side(self, size: int | None) -> int:
        return self.source.side or super().stored_side(size)

    def some(self, images: int, count: int) -> Tensor:
        return torch.arange(min(count, images))  # already in random order

    def validation_of(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        return balanced(labels, self.source.validation_per_class)


class NamedFiles(ListedDataset, NamedDataset):
    """A named dataset of image files."""

    ignored = frozenset({"labels", "mean", "std", "frames"})

    def split(self, holdout: Holdout, run: Path | None = None) -> Split:
        lists = (holdout == self.options.holdout and self._saved(run)) or self._found(holdout)
        return Split(*(replace(files, white=self.options.white) for files in lists))

    def pipeline(self, size: int | None) -> ViewPipeline:
        return folder_pipeline(size or USUAL_SIZE)

    def _saved(self, run: Path | None) -> tuple[Listing, Listing] | None:
        """The saved lists of a run. None if its files have moved: then the same files are listed again."""
        if run is None or not (run / FILES).is_file():
            return None
        saved = saved_files(run / FILES)
        return saved if any(map(os.path.exists, saved[0].paths)) else None

    def _found(self, holdout: Holdout) -> tuple[Listing, Listing]:
        source = FILE_SOURCES[self.name]
        train, test = source.find(self.folder)
        if holdout == "test":
            return train, test
        rest, validation = drawn(len(train), source.validation)
        return train[rest], train[validation]


def load_data(name: str, holdout: Holdout = "validation", root: Path | None = None) -> tuple[Images, Images]:
    """Load a dataset into memory, downloading it first if necessary.

    Args:
        name: Name of the dataset (`hypersphere data` lists them), or path of a .npz or .npy file.
        holdout: "validation" holds out a class-balanced part of the training set, for choosing options. "test" keeps
            the whole training set and holds out the test set.
        root: Folder of the data files (None: `default_root()`).

    Returns:
        (training images, held-out images).

    Raises:
        UserError: If the dataset is unknown or cannot be downloaded, or if it is a dataset of files (see `list_data`).

    Example:
        >>> train, held_out = hs.data.load_data("digits")
        >>> len(train), len(held_out)
        (1137, 300)
    """
    if name in FILE_SOURCES:
        raise UserError(f"{name} is a dataset of image files: use list_data")
    return _split(name, holdout, root)


def list_data(name: str, root: Path | None = None, holdout: Holdout = "test") -> tuple[Listing, Listing]:
    """List the files of a dataset, downloading it first if necessary.

    Args:
        name: Name of the dataset (`hypersphere data` lists them), a folder of images, or tar files.
        root: Folder of the data files of a named dataset (None: `default_root()`).
        holdout: "validation" holds out part of the training set, "test" the test set.

    Returns:
        (training files, held-out files).

    Raises:
        UserError: If the dataset is unknown or cannot be found, or if it is held in memory (see `load_data`).

    Example:
        >>> train, test = hs.data.list_data("imagenette")  # doctest: +SKIP
        >>> len(train), len(test), train.classes[0]  # doctest: +SKIP
        (9469, 3925, 'tench')
    """
    if name in SOURCES:
        raise UserError(f"{name} is loaded into memory: use load_data")
    return _split(name, holdout, root)


def _split(name: str, holdout: str, root: Path | None) -> Split:
    if holdout not in ("validation", "test"):
        raise UserError(f"holdout must be validation or test, got {holdout!r}")
    return Dataset.resolve(DataSpec(name, root=root)).split(holdout)  # type: ignore[arg-type]


def _digits(root: Path) -> tuple[Images, Images]:
    """scikit-learn's 1,797 scans of handwritten digits, 8 × 8. It has no test set: we take 36 of each class."""
    file = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    table = torch.from_numpy(np.loadtxt(str(file), delimiter=","))  # load_digits() would import all of scikit-learn
    pixels = table[:, :64].view(-1, 1, 8, 8) * (255 / 16)
    images = Images(pixels.round().to(torch.uint8), table[:, 64].long(), tuple("0123456789"))
    train, test = balanced(images.labels, per_class=36, seed=1)
    return images[train], images[test]


SOURCES = {
    "digits": Source(
        _digits, 30, "handwritten digits, 8 × 8, part of scikit-learn: nothing to download", 20, embedded=True
    ),
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
