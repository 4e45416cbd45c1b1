"""The interface of all datasets: `Dataset.resolve` picks the class for the option `data`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from hypersphere.data.images import Images
from hypersphere.data.options import DataSpec, Holdout
from hypersphere.data.splits import drawn, evenly, of_each_class
from hypersphere.data.streamed_images import StreamedImages
from hypersphere.data.worker_stream import default_workers
from hypersphere.errors import UserError
from hypersphere.util.launcher import local_rank_and_size
from hypersphere.views import ViewPipeline, folder_pipeline

if TYPE_CHECKING:
    from hypersphere.data.normalization import Normalization

ImageSet = Images | StreamedImages
Unreadable = dict[Path | str, str]  # image → reason why it could not be read
MOST_IN_MEMORY = (20_000, 5_000)  # most training and held-out images to decode into memory
USUAL_SIZE = 224  # default side of the encoder's input, in pixels


class UnknownData(UserError):
    """`data` is neither a name nor a path of images."""


class Split(NamedTuple):
    """Training images and held-out images, both of the same class.

    Without labels nothing is held out: `held_out` is then a sample of the training images.

    Attributes:
        train: `Images` in memory, or images that are read when needed, such as a `Listing`.
        held_out: Images of the same class as `train`.

    Example:
        >>> split = hs.data.Dataset.resolve(hs.data.DataSpec("digits")).split("validation")
        >>> len(split.train), len(split.held_out), split.apart
        (1137, 300, True)
    """

    train: Any  # Images or StreamedImages
    held_out: Any

    @property
    def apart(self) -> bool:
        """Whether the held-out images are not among the training images.

        Either all of them are or none is, so the first one decides.
        """
        known = isinstance(self.held_out, Images) and self.held_out.classes
        return bool(known) or not self.train.contains(self.held_out)

    def to(self, device: torch.device) -> "Split":
        """Move images in memory to a device."""
        return Split(self.train.to(device), self.held_out.to(device))


class Hints(NamedTuple):
    """Properties of a dataset that the recipe for folders and arrays depends on."""

    images: int  # number of training images
    side: int  # median shorter side, in pixels
    channels: int = 3


class Voting(NamedTuple):
    """Settings of the weighted k-NN classifier."""

    neighbours: int
    temperature: float


class Dataset(ABC):
    """A source of images: a named dataset, a folder, tar files, arrays, or a dataset object of another library.

    `Dataset.resolve` makes one. To add a source, write a subclass and add a line to `resolve` in resolving.py. The
    constructor reads nothing: the method that needs missing or damaged files raises the error.

    Args:
        name: Name to keep in a config: a dataset's name, an absolute path, a URL or a reference to code. Resolving it
            again, in any working folder, gives the same dataset.
        options: The data options of a config, or a `DataSpec`.

    Attributes:
        ignored: Options of a run that have no effect on this kind of data.
        labels_advice: What to do about the option `labels`, if it is among `ignored`.
        has_recipe: Whether the dataset has a recipe and splits of its own.
        voting: Settings of the k-NN classifier.

    Example:
        >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
        >>> train, held_out = dataset.split("test")
        >>> train.pixels.shape, len(held_out)
        (torch.Size([1437, 1, 8, 8]), 360)
    """

    ignored: ClassVar[frozenset[str]] = frozenset()
    has_recipe: ClassVar[bool] = False
    labels_advice: ClassVar[str] = "remove it"
    voting = Voting(20, 0.07)

    def __init__(self, name: str, options: DataSpec) -> None:
        self.name, self.options = name, options

    @staticmethod
    def resolve(options: DataSpec) -> "Dataset":
        """Find the dataset that `options.data` names.

        Args:
            options: A `DataSpec`, or a config.

        Returns:
            The dataset, of which nothing has been read yet.

        Raises:
            UserError: If it is not a dataset's name, a path of images, a file of arrays or a reference to code.

        Example:
            >>> hs.data.Dataset.resolve(hs.data.DataSpec("digits")).name
            'digits'
        """
        from hypersphere.data.resolving import resolve

        return resolve(options)

    @abstractmethod
    def split(self, holdout: Holdout, run: Path | None = None) -> Split:
        """Split the images into training and held-out images.

        Args:
            holdout: "validation" holds out part of the training images, "test" the test set.
            run: Folder of a run on these data, to get the same images that it began with.

        Returns:
            Training images and held-out images.

        Raises:
            UserError: If files are missing or damaged, or if the images of the run have changed.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> train, held_out = dataset.split("validation")
            >>> len(train), len(held_out)
            (1137, 300)
        """

    def everything(self) -> Mapping[str, ImageSet]:
        """All images, also those of the test set.

        Returns:
            The images by split; without splits, with an empty name.

        Raises:
            UserError: If files are missing or damaged.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> {part: len(images) for part, images in dataset.everything().items()}
            {'train': 1437, 'test': 360}
        """
        split = self.split("test" if self.has_recipe else "validation")
        return {"train": split.train, "test" if self.has_recipe else "held_out": split.held_out}

    def split_of_job(self, holdout: Holdout, run: Path | None = None) -> Split:
        """As `split`, on every rank of a distributed job.

        One rank of each machine reads the data first, the others follow. Folders are listed by rank 0 only.

        Args:
            holdout: "validation" or "test".
            run: Folder of a run on these data.

        Returns:
            The same split on every rank.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> len(dataset.split_of_job("test").train)
            1437
        """
        from hypersphere.distributed.collectives import run_first_on_each_machine

        return run_first_on_each_machine(lambda: self.split(holdout, run))

    def summary(self) -> str | None:
        """A summary of the images that were found, for the user.

        Returns:
            One line of text. None for named datasets, whose content is known.

        Raises:
            UserError: If there are too few images, or none can be read.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> dataset.summary() is None
            True
        """
        return None

    def warning(self) -> str:
        """A warning if the values of 16-bit pixels do not fit the option `white`.

        Returns:
            One line of text; empty if there is nothing to warn of.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> dataset.warning()
            ''
        """
        return ""

    def recipe_hints(self) -> Hints | None:
        """The properties that the default options of a run depend on.

        Returns:
            Number and size of the training images. None if the dataset has its own recipe.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> dataset.recipe_hints() is None
            True
        """
        return None

    def check(self) -> None:  # noqa: B027
        """Raise an error early if there are no images, for sources where that is quick to find out.

        Raises:
            UserError: If there are no images.

        Example:
            >>> hs.data.Dataset.resolve(hs.data.DataSpec("digits")).check()
        """

    def pipeline(self, size: int | None) -> ViewPipeline:
        """The views for training and evaluation.

        Args:
            size: Side of the views in pixels, if the dataset allows any size (None: 224).

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> dataset.pipeline(size=None).size
            8
        """
        usual, own = folder_pipeline(size or USUAL_SIZE), self.options
        return replace(usual, mean=own.mean, std=own.std) if own.mean else usual

    def normalization(self, channels: int) -> "Normalization":
        """Mean and standard deviation of the channels, measured on training images.

        Args:
            channels: Number of channels to read: that of the images, or 1 or 3 for grey and colour images.

        Returns:
            The measures, of values from 0 to 1.

        Raises:
            UserError: If none of the images can be read.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> dataset.normalization(channels=1).mean
            (0.3056,)
        """
        from hypersphere.data.normalization import measure

        return measure(self.split(self.options.holdout).train, channels, self.workers)

    def stored_side(self, size: int | None) -> int:
        """Side, in pixels, of the squares that evaluation views are cropped from.

        Args:
            size: Side of the views in pixels, as in `pipeline`.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> dataset.stored_side(size=None)
            8
        """
        pipeline = self.pipeline(size)
        return pipeline.resize or pipeline.size

    @property
    def workers(self) -> int:
        """Number of worker processes that read images: the option, or chosen from the number of cores.

        Example:
            >>> hs.data.Dataset.resolve(hs.data.DataSpec("digits", workers=3)).workers
            3
        """
        if self.options.workers is not None:
            return self.options.workers
        return -(-default_workers(torch.cuda.is_available()) // local_rank_and_size()[1])

    def in_memory(
        self,
        split: Split,
        most: tuple[int, int] = MOST_IN_MEMORY,
        progress: bool = False,
        unreadable: Unreadable | None = None,
    ) -> tuple[Images, Images]:
        """Decode images of a split to squares of `stored_side` pixels.

        Args:
            split: The images.
            most: Most training and held-out images to read. Images that are already in memory are all kept.
            progress: Whether to show a progress bar.
            unreadable: Dictionary that receives held-out images that cannot be read. The training loader reports its
                own.

        Returns:
            (training images, held-out images) in memory, of shape (N, C, H, W).

        Raises:
            UserError: If none of the images can be read.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> train, held_out = dataset.in_memory(dataset.split("test"))
            >>> held_out.pixels.shape
            torch.Size([360, 1, 8, 8])
        """
        side, ignored = self.stored_side(self.options.size), None if unreadable is None else Unreadable()
        train = split.train.decoded(side, self.workers, most[0], progress=progress, unreadable=ignored)
        held_out = split.held_out.decoded(side, self.workers, most[1], progress=progress, unreadable=unreadable)
        return train, held_out

    def squares(self, images: ImageSet) -> Any:
        """The central square of every image, batch by batch.

        Args:
            images: Training or held-out images of a split.

        Returns:
            An iterator of tensors of shape (B, C, side, side), uint8.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> [part.shape for part in dataset.squares(dataset.split("test").held_out)]
            [torch.Size([360, 1, 8, 8])]
        """
        return images.squares(self.stored_side(self.options.size), self.workers)

    def some(self, images: int, count: int) -> Tensor:
        """Indices of a few images to look at: evenly spaced, since folders are often sorted by class.

        Args:
            images: Number of images N.
            count: Number of images to choose; all if it exceeds N.

        Returns:
            Tensor of shape (min(count, N),), int64.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> dataset.some(images=100, count=3)
            tensor([0, 1, 2])
        """
        return evenly(images, count)

    def validation_of(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Choose validation images among training images.

        Args:
            labels: Labels of the training images, shape (N,), int64, none unknown.

        Returns:
            (remaining indices, validation indices): sorted int64 tensors that partition `range(N)`.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> rest, validation = dataset.validation_of(torch.arange(10).repeat(100))
            >>> len(rest), len(validation)
            (700, 300)
        """
        counts = labels.bincount()
        if (counts[counts > 0] >= 5).all():
            return of_each_class(labels, counts // 5)
        return drawn(len(labels), max(1, len(labels) // 5))

    def edition(self) -> str:
        """A hash that changes if the images change.

        Returns:
            The first digits of the hash. Empty for datasets that never change.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> dataset.edition()
            ''
        """
        return ""

    def run_record(self, split: Split) -> dict[str, Any]:
        """Entries for run.json, with which a resumed run checks that it gets the same images.

        Args:
            split: The images of the run.

        Returns:
            Names and values that JSON can hold.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> dataset.run_record(dataset.split("test"))
            {}
        """
        return {}

    def save_lists(self, folder: Path, split: Split) -> None:  # noqa: B027
        """Write the lists of images that a run needs when it is resumed.

        Args:
            folder: Folder of the run.
            split: The images of the run.

        Example:
            >>> from pathlib import Path
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> dataset.save_lists(Path("runs/mine"), dataset.split("test"))  # a dataset in memory has no lists
        """

    def unreadable_folders(self, split: Split) -> Unreadable:
        """Folders that could not be searched for images.

        Args:
            split: The images of the run.

        Returns:
            The path of each folder, with the reason.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> dataset.unreadable_folders(dataset.split("test"))
            {}
        """
        return {}

    def takes_root(self, begun: bool) -> bool:
        """Whether the option `root` applies to this dataset.

        Args:
            begun: Whether the run has begun: a folder can only have moved after that.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> dataset.takes_root(begun=False)
            True
        """
        return False

    def check_root(self, begun: bool = True) -> None:
        """Check that `root` applies if it is given.

        Args:
            begun: Whether the run has begun.

        Raises:
            UserError: If `root` is given and does not apply.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> dataset.check_root()
        """
        if self.options.root is not None and not self.takes_root(begun):
            why = "it applies to named datasets, and to folders that have moved since a run began"
            raise UserError(f"`root` has no effect on {self.name}: {why}; remove it")

    def check_options(self) -> None:
        """Check that the options of a new run apply.

        Raises:
            UserError: If `root` or `labels` is given and does not apply.

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> dataset.check_options()
        """
        self.check_root(begun=False)
        if self.options.labels is not None and "labels" in self.ignored:
            why = "it applies to folders, zip files and tar files"
            raise UserError(f"`labels` has no effect on {self.name}: {why}; {self.labels_advice}")

    def needs_root(self, run: Path) -> bool:
        """Whether a `root` that is given for several runs applies to this one.

        Args:
            run: Folder of the run.

        Example:
            >>> from pathlib import Path
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> dataset.needs_root(Path("runs/mine"))
            True
        """
        return self.takes_root(begun=True)

    def relocated(self) -> tuple[str, Path | None]:
        """The options for a config without saved lists of files: if a folder has moved, `root` becomes `data`.

        Returns:
            (data, root).

        Example:
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> dataset.relocated()
            ('digits', None)
        """
        return self.name, self.options.root

    def check_present(self, owner: Path) -> None:  # noqa: B027
        """Check that the images that an exported encoder was trained on still exist.

        Args:
            owner: Folder of the exported encoder, for the message.

        Raises:
            UserError: If they do not exist.

        Example:
            >>> from pathlib import Path
            >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
            >>> dataset.check_present(Path("runs/mine/export"))
        """
