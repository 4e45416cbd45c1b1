"""Sets of images that are read when they are needed, so that there may be more than memory holds."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from hypersphere.data.images import Images
from hypersphere.data.stream import Reader, Stream
from hypersphere.util.draws import SPLIT, permutation
from hypersphere.util.progress import progress_bar, tell_once
from hypersphere.util.text import printable
from hypersphere.views import Recipe
from hypersphere.views.crops import middle_of

if TYPE_CHECKING:
    from hypersphere.data.loader import StreamLoader


class StreamedImages(ABC):
    """Images behind a `Reader`; a subclass says where they are."""

    labels: Tensor | None  # (N,), int64, −1: unknown; None: no labels
    classes: tuple[str, ...]
    channels = 3

    @property
    @abstractmethod
    def reader(self) -> Reader: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: Tensor) -> Self: ...

    @abstractmethod
    def contains(self, others: Self) -> bool:
        """Whether the first of `others` is one of these images."""

    def to(self, device: torch.device) -> Self:
        """Themselves: images come to the device batch by batch."""
        return self

    def loader(
        self, pipeline: Recipe, seed: int, device: torch.device, workers: int = 0, progress: bool = False
    ) -> "StreamLoader":
        """Batches of these images as `pipeline` shows them to an encoder."""
        from hypersphere.data.loader import StreamLoader

        return StreamLoader(self, pipeline, seed, device, workers, progress)

    def squares(self, side: int, workers: int, unreadable: dict[Path | str, str] | None = None) -> Iterator[Tensor]:
        """The middle square of every image, batch by batch in their order, (B, 3, side, side) uint8.

        A neighbour takes the place of an image that cannot be read, which is noted in `unreadable`.
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
        """The middle squares of at most `most` images, evenly chosen, in memory.

        Unreadable images are left out: noted in `unreadable`, or else reported on standard error.
        """
        some = self if len(self) <= most else self[self._evenly(most)]
        parts: list[Tensor] = []
        lost: dict[Path | str, str] = {}
        with progress_bar("reading images", len(some), show=progress and len(some) > 1000) as bar:
            for part in some.squares(side, workers, lost):
                parts.append(part)
                bar.update(sum(map(len, parts)))
        if unreadable is not None:
            unreadable.update(lost)
        elif lost:
            examples = printable(Path(next(iter(lost))).name) + ", …" * (len(lost) > 1)
            tell_once(f"ignored {len(lost):,} of {len(some):,} images that cannot be read: {examples}")
        readable = [n for n in range(len(some)) if some.reader.name(n) not in lost] if lost else range(len(some))
        labels = torch.full((len(some),), -1) if some.labels is None else some.labels
        return Images(torch.cat(parts), labels, some.classes)[torch.tensor(readable)]

    def _evenly(self, most: int) -> Tensor:
        """Some of all images, those with a label first."""
        order = permutation(len(self), seed=1, stream=SPLIT)
        if self.labels is not None:
            order = order[(self.labels[order] < 0).long().argsort(stable=True)]
        return order[:most].sort().values
