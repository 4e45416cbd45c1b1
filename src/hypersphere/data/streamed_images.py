"""Images that are read when they are needed, so that they need not fit into memory."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from hypersphere.data.images import Images
from hypersphere.data.pixel_cache import Place
from hypersphere.data.worker_stream import Reader, Stream
from hypersphere.util.console import notify_once, progress_bar
from hypersphere.util.random_numbers import SPLIT, permutation
from hypersphere.util.text import printable
from hypersphere.views import ViewPipeline
from hypersphere.views.crops import middle_of

if TYPE_CHECKING:
    from hypersphere.data.loader import StreamLoader


class StreamedImages(ABC):
    """Base class of images that a `Reader` reads, such as files."""

    labels: Tensor | None  # (N,), int64, −1 if unknown; None if there are no labels
    classes: tuple[str, ...]

    bands: int | None  # number of channels to read; None: 3, and of images with more those that Pillow reads

    @property
    def channels(self) -> int:
        """Number of channels C of an image.

        Example:
            >>> hs.data.Listing(("cat.png", "dog.png")).channels
            3
        """
        return self.bands or 3

    def in_channels(self, channels: int) -> Self:
        """The same images, read with another number of channels.

        Args:
            channels: That of the images, or 1 or 3 for grey images and images in colour.

        Example:
            >>> files = hs.data.Listing(("cat.png", "dog.png"))
            >>> files.in_channels(1).channels
            1
        """
        return replace(self, bands=channels)  # type: ignore[type-var]

    @property
    @abstractmethod
    def reader(self) -> Reader: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: Tensor) -> Self: ...

    @abstractmethod
    def contains(self, others: Self) -> bool:
        """Whether the first image of `others` is one of these images."""

    def to(self, device: torch.device) -> Self:
        """Return the images themselves: a loader moves each batch to the device.

        Args:
            device: Not used.

        Example:
            >>> files = hs.data.Listing(("cat.png", "dog.png"))
            >>> files.to(torch.device("cpu")) is files
            True
        """
        return self

    def squared(self, side: int) -> Self:
        """Return the images themselves: they are read as squares.

        Args:
            side: Not used. See `Images.squared`.

        Example:
            >>> files = hs.data.Listing(("cat.png", "dog.png"))
            >>> files.squared(side=16) is files
            True
        """
        return self

    def names(self, numbers: Tensor) -> list[str]:
        """The names of images in messages: their paths, for files.

        Args:
            numbers: Indices of the images, shape (M,).

        Example:
            >>> hs.data.Listing(("cat.png", "dog.png")).names(torch.tensor([1]))
            ['dog.png']
        """
        reader = self.reader
        return [str(reader.name(number)) for number in numbers.tolist()]

    def loader(
        self,
        pipeline: ViewPipeline,
        seed: int,
        device: torch.device,
        workers: int = 0,
        progress: bool = False,
        cache: Place = "off",
    ) -> "StreamLoader":
        """Make a loader, which gives batches of views of these images.

        Args:
            pipeline: The views.
            seed: Seed of random views.
            device: Device of the batches.
            workers: Number of worker processes that read images; 0 reads in this process.
            progress: Whether to show a progress bar while reading.
            cache: Where decoded images are kept for random views: "gpu", "memory", "disk", "auto" or "off".

        Returns:
            A `Loader`.

        Example:
            >>> files = hs.data.Listing(("cat.png", "dog.png"))
            >>> pipeline = hs.views.folder_pipeline(224)
            >>> len(files.loader(pipeline, seed=0, device=torch.device("cpu")))
            2
        """
        from hypersphere.data.loader import StreamLoader

        return StreamLoader(self, pipeline, seed, device, workers, progress, cache)

    def squares(self, side: int, workers: int, unreadable: dict[Path | str, str] | None = None) -> Iterator[Tensor]:
        """The central square of every image, in order.

        Another image replaces one that cannot be read.

        Args:
            side: Side of the squares in pixels.
            workers: Number of worker processes that read images; 0 reads in this process.
            unreadable: Dictionary that receives unreadable images and the reasons.

        Returns:
            An iterator of tensors of shape (B, C, side, side), uint8.

        Raises:
            UserError: If none of the images can be read.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> from PIL import Image
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     Image.new("RGB", (40, 30)).save(Path(folder, "a.png"))
            ...     files = hs.data.Listing((Path(folder, "a.png"),))
            ...     [part.shape for part in files.squares(side=16, workers=0)]
            [torch.Size([1, 3, 16, 16])]
        """
        stream = Stream(self.reader, partial(middle_of, side=side), side=side, workers=workers, unreadable=unreadable)
        for part in stream.every(64):
            yield part.pixels

    def decoded(
        self,
        side: int,
        workers: int,
        most: int,
        *,
        progress: bool = False,
        unreadable: dict[Path | str, str] | None = None,
    ) -> Images:
        """Read the central squares of at most `most` images into memory, skipping unreadable images.

        Args:
            side: Side of the squares in pixels.
            workers: Number of worker processes that read images; 0 reads in this process.
            most: Most images to read: a random choice, labelled images first, in their order.
            progress: Whether to show a progress bar.
            unreadable: Dictionary that receives unreadable images and the reasons. If None, they are reported on
                standard error.

        Returns:
            The images, of shape (N, C, side, side).

        Raises:
            UserError: If none of the images can be read.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> from PIL import Image
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     Image.new("RGB", (40, 30)).save(Path(folder, "a.png"))
            ...     hs.data.Listing((Path(folder, "a.png"),)).decoded(side=16, workers=0, most=100).pixels.shape
            torch.Size([1, 3, 16, 16])
        """
        chosen = self if len(self) <= most else self[self._choice(most)]
        parts: list[Tensor] = []
        lost: dict[Path | str, str] = {}
        with progress_bar("reading images", len(chosen), show=progress and len(chosen) > 1000) as bar:
            for part in chosen.squares(side, workers, lost):
                parts.append(part)
                bar.update(sum(map(len, parts)))
        if unreadable is not None:
            unreadable.update(lost)
        elif lost:
            examples = printable(Path(next(iter(lost))).name) + ", …" * (len(lost) > 1)
            notify_once(f"ignored {len(lost):,} of {len(chosen):,} images that cannot be read: {examples}")
        reader = chosen.reader  # made once: it encodes all names
        readable = [n for n in range(len(chosen)) if reader.name(n) not in lost] if lost else range(len(chosen))
        labels = torch.full((len(chosen),), -1) if chosen.labels is None else chosen.labels
        return Images(torch.cat(parts), labels, chosen.classes)[torch.tensor(readable)]

    def _choice(self, most: int) -> Tensor:
        """Sorted indices of `most` random images, labelled images first."""
        order = permutation(len(self), seed=1, stream=SPLIT)
        if self.labels is not None:
            order = order[(self.labels[order] < 0).long().argsort(stable=True)]
        return order[:most].sort().values
