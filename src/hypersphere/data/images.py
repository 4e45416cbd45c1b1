"""Images held in memory as bytes."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hypersphere.views import Recipe, Views

if TYPE_CHECKING:
    from hypersphere.data.loader import MemoryLoader


@dataclass(frozen=True)
class Images:
    """A set of images in memory.

    Attributes:
        pixels: Tensor of shape (N, C, H, W), uint8.
        labels: Tensor of shape (N,), int64: indices into `classes`, −1 if unknown.
        classes: Names of the classes; empty if there are no labels.

    Example:
        >>> import torch
        >>> images = Images(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, -1]), ("cat", "dog"))
        >>> len(images), len(images.labelled), images.channels
        (3, 2, 1)
    """

    pixels: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: Tensor) -> "Images":
        return replace(self, pixels=self.pixels[index], labels=self.labels[index])

    def to(self, device: torch.device) -> "Images":
        """The same images on another device."""
        return replace(self, pixels=self.pixels.to(device), labels=self.labels.to(device))

    def with_unlabelled(self, pixels: Tensor) -> "Images":
        """These images, followed by others that have no label."""
        unknown = self.labels.new_full((len(pixels),), -1)
        return replace(self, pixels=torch.cat([self.pixels, pixels]), labels=torch.cat([self.labels, unknown]))

    @property
    def labelled(self) -> "Images":
        """The images with a known label: all that a probe can use."""
        known = self.labels >= 0
        return self if bool(known.all()) else self[known]

    @property
    def channels(self) -> int:
        return self.pixels.shape[1]

    def decoded(self, side: int, workers: int, most: int, **unused: object) -> "Images":
        """Themselves: they are decoded already."""
        return self

    def squares(self, side: int, workers: int) -> Iterator[Tensor]:
        """All pixels, some thousand images at a time."""
        return iter(self.pixels.split(4096))

    def loader(
        self, pipeline: Recipe, seed: int, device: torch.device, workers: int = 0, progress: bool = False
    ) -> "MemoryLoader":
        """Batches of these images as `pipeline` shows them to an encoder."""
        from hypersphere.data.loader import MemoryLoader

        return MemoryLoader(self.to(device), Views(pipeline, seed))

    def contains(self, others: "Images") -> bool:
        """Whether the first of `others` is one of these images, bit for bit."""
        if self.pixels.shape[1:] != others.pixels.shape[1:]:
            return False
        return bool((self.pixels == others.pixels[0]).flatten(1).all(1).any())


def fingerprint(images: Iterable[Images]) -> str:
    """The first digits of a hash of pixels and labels."""
    found = hashlib.sha256()
    for some in images:
        found.update(some.pixels.cpu().numpy().data)
        found.update(some.labels.cpu().numpy().data)
    return found.hexdigest()[:12]
