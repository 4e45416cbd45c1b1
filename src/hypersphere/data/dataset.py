"""What `data` means, resolved once: one class for each kind of source, one interface for the rest of the project."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from hypersphere.data.images import Images
from hypersphere.data.splits import drawn, evenly, of_each_class
from hypersphere.data.stream import default_workers
from hypersphere.data.streamed import StreamedImages
from hypersphere.errors import UserError
from hypersphere.util.launch import place_on_machine
from hypersphere.views import Recipe, folder_recipe

Holdout = Literal["validation", "test"]
ImageSet = Images | StreamedImages
Unreadable = dict[Path | str, str]  # image → why it could not be read
MOST_IN_MEMORY = (20_000, 5_000)  # training and held-out images that are decoded at once, at most
USUAL_SIZE = 224  # of the encoder's input, if nothing else is known


class DataOptions(Protocol):
    """The options that say what a run learns from: those of a `Config`."""

    @property
    def data(self) -> str: ...
    @property
    def holdout(self) -> "Holdout": ...
    @property
    def labels(self) -> str | None: ...
    @property
    def white(self) -> int | None: ...
    @property
    def size(self) -> int | None: ...
    @property
    def root(self) -> Path | None: ...
    @property
    def workers(self) -> int | None: ...


class Given(NamedTuple):
    """`DataOptions` without a config."""

    data: str
    holdout: Holdout = "validation"
    labels: str | None = None
    white: int | None = None
    size: int | None = None
    root: Path | None = None
    workers: int | None = None


class Split(NamedTuple):
    """What is learned from, and what is held out; both of one kind.

    Without labels nothing is held out: `held_out` are then some of the images that are learned from.
    """

    train: Any  # Images or StreamedImages
    held_out: Any

    @property
    def apart(self) -> bool:
        """Whether the held-out images are not learned from. If they are, all of them are: the first one tells."""
        known = isinstance(self.held_out, Images) and self.held_out.classes
        return bool(known) or not self.train.contains(self.held_out)

    def to(self, device: torch.device) -> "Split":
        return Split(self.train.to(device), self.held_out.to(device))


class Hints(NamedTuple):
    """What a recipe for images of any kind depends on."""

    images: int
    side: int  # median length of the shorter sides, in pixels


class Voting(NamedTuple):
    """Settings of the weighted k-NN classifier."""

    neighbours: int
    temperature: float


class Dataset(ABC):
    """A source of images: a named dataset, a folder, tar files, arrays, or a dataset object of another library.

    A new source is one subclass and one line in `resolve`. Making one reads nothing: what is missing or damaged is
    reported by the method that needs it.

    Attributes:
        name: What a config keeps: a name, an absolute path, a URL or a reference to code. Resolving it again, in any
            folder, gives the same dataset.
        ignored: Options of a run that have no effect on this kind of data.
        voting: Settings of the k-NN classifier.
    """

    ignored: ClassVar[frozenset[str]] = frozenset()
    voting = Voting(20, 0.07)

    def __init__(self, name: str, options: DataOptions) -> None:
        self.name, self.options = name, options

    @staticmethod
    def resolve(options: DataOptions) -> "Dataset":
        """The dataset that `options.data` names.

        Raises:
            UserError: If it is not a dataset's name, a path of images, a file of arrays or a reference to code.

        Example:
            >>> from hypersphere.data import Dataset, Given
            >>> Dataset.resolve(Given("digits")).split("test").train.pixels.shape
            torch.Size([1437, 1, 8, 8])
        """
        from hypersphere.data.kinds import resolve

        return resolve(options)

    @abstractmethod
    def split(self, holdout: Holdout, run: Path | None = None) -> Split:
        """What is learned from and what is held out.

        Args:
            holdout: "validation" holds out part of the training images, "test" the test set.
            run: Folder of a run that began with these data: the images are those that it began with.
        """

    def split_of_job(self, holdout: Holdout, run: Path | None = None) -> Split:
        """`split` on every rank of a job: each reads the data, one of each machine first."""
        from hypersphere.distributed.collectives import first_of_machine_first

        return first_of_machine_first(lambda: self.split(holdout, run))

    def summary(self) -> str | None:
        """What was found, in words; None for datasets that are known."""
        return None

    def recipe_hints(self) -> Hints | None:
        """What a recipe depends on; None if the dataset has a recipe of its own."""
        return None

    def pipeline(self, size: int | None) -> Recipe:
        """Views for training and evaluation, at `size` pixels a side if the images can be shown at any size."""
        return folder_recipe(size or USUAL_SIZE)

    def stored_side(self, size: int | None) -> int:
        """Pixels a side of the squares that evaluation views are made from."""
        pipeline = self.pipeline(size)
        return pipeline.resize or pipeline.size

    @property
    def workers(self) -> int:
        """Processes that read images: as the options say, or as many as this process has cores for."""
        if self.options.workers is not None:
            return self.options.workers
        return -(-default_workers(torch.cuda.is_available()) // place_on_machine()[1])

    def in_memory(
        self,
        split: Split,
        most: tuple[int, int] = MOST_IN_MEMORY,
        progress: bool = False,
        unreadable: Unreadable | None = None,
    ) -> tuple[Images, Images]:
        """At most so many images of each part, decoded to the size that evaluation views are made from.

        Args:
            split: The images.
            most: Images of each part, at most, if they have to be read; images in memory are taken as they are.
            progress: Whether to show a progress bar.
            unreadable: Gets the held-out images that cannot be read. The training loader reports its own.
        """
        side, ignored = self.stored_side(self.options.size), None if unreadable is None else Unreadable()
        train = split.train.decoded(side, self.workers, most[0], progress=progress, unreadable=ignored)
        held_out = split.held_out.decoded(side, self.workers, most[1], progress=progress, unreadable=unreadable)
        return train, held_out

    def squares(self, images: ImageSet) -> Any:
        """The middle square of every image, some at a time: (B, C, side, side), uint8."""
        return images.squares(self.stored_side(self.options.size), self.workers)

    def some(self, images: int, count: int) -> Tensor:
        """Indices of `count` of the images, to look at. Images of users are often sorted: they are taken evenly."""
        return evenly(images, count)

    def validation_of(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """(the rest, some to validate on) of training images with these labels."""
        counts = labels.bincount()
        if (counts[counts > 0] >= 5).all():
            return of_each_class(labels, counts // 5)
        return drawn(len(labels), max(1, len(labels) // 5))

    def edition(self) -> str:
        """Changes when the images do: the first digits of a hash. Empty for datasets that never change."""
        return ""

    def run_record(self, split: Split) -> dict[str, Any]:
        """What run.json keeps, so that a resumed run can tell whether it gets the same images."""
        return {}

    def save_lists(self, folder: Path, split: Split) -> None:  # noqa: B027
        """Write what a run must remember about its images into its folder."""

    def unreadable_folders(self, split: Split) -> Unreadable:
        """Folders that could not be searched for images."""
        return {}

    def takes_root(self, begun: bool) -> bool:
        """Whether `root` applies, before a run begins or once it has begun."""
        return False

    def check_root(self, begun: bool = True) -> None:
        """Refuse a `root` that does not apply."""
        if self.options.root is not None and not self.takes_root(begun):
            why = "it applies to named datasets, and to folders that have moved since a run began"
            raise UserError(f"`root` has no effect on {self.name}: {why}; leave it out")

    def needs_root(self, run: Path) -> bool:
        """Whether a root given for several runs is meant for this one."""
        return self.takes_root(begun=True)

    def relocated(self) -> tuple[str, Path | None]:
        """(data, root) of a config that came without a list of files: a folder that has moved is where root says."""
        return self.name, self.options.root

    def check_present(self, owner: Path) -> None:  # noqa: B027
        """Refuse data that have gone since `owner`, an exported encoder, learned from them."""
