"""Images in memory, as uint8 tensors."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hypersphere.errors import UserError
from hypersphere.util.console import pluralize
from hypersphere.views import ViewPipeline, Views
from hypersphere.views.crops import middle
from hypersphere.views.ops import grey

if TYPE_CHECKING:
    from hypersphere.data.loader import MemoryLoader


@dataclass(frozen=True)
class Images:
    """N images in memory.

    Attributes:
        pixels: Tensor of shape (N, C, H, W), uint8.
        labels: Tensor of shape (N,), int64: indices into `classes`, −1 if unknown.
        classes: Names of the classes; empty if there are no labels.
        brightest: Largest of the integers of more than 8 bits that the pixels were made from; 0 if there were none.

    Example:
        >>> pixels = torch.zeros(3, 1, 8, 8, dtype=torch.uint8)
        >>> images = hs.data.Images(pixels, torch.tensor([0, 1, -1]), ("cat", "dog"))
        >>> len(images), len(images.labelled), images.channels
        (3, 2, 1)
    """

    pixels: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    brightest: int = 0

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: Tensor) -> "Images":
        return replace(self, pixels=self.pixels[index], labels=self.labels[index])

    def to(self, device: torch.device) -> "Images":
        """Move the images to a device.

        Args:
            device: The device.

        Returns:
            The same images on the device.

        Example:
            >>> images, _ = hs.data.load_data("digits")
            >>> images.to(torch.device("cpu")).pixels.device
            device(type='cpu')
        """
        return replace(self, pixels=self.pixels.to(device), labels=self.labels.to(device))

    def with_unlabelled(self, pixels: Tensor) -> "Images":
        """Append images that have no label.

        Args:
            pixels: Tensor of shape (M, C, H, W), uint8.

        Returns:
            N + M images; the labels of the last M are −1.

        Example:
            >>> images, _ = hs.data.load_data("digits")
            >>> len(images), len(images.with_unlabelled(images.pixels[:10]))
            (1137, 1147)
        """
        unknown = self.labels.new_full((len(pixels),), -1)
        return replace(self, pixels=torch.cat([self.pixels, pixels]), labels=torch.cat([self.labels, unknown]))

    @property
    def labelled(self) -> "Images":
        """The images with a known label, which probes use.

        Example:
            >>> images, _ = hs.data.load_data("digits")
            >>> len(images.with_unlabelled(images.pixels[:10]).labelled)
            1137
        """
        known = self.labels >= 0
        return self if bool(known.all()) else self[known]

    @property
    def channels(self) -> int:
        """Number of channels C.

        Example:
            >>> images, _ = hs.data.load_data("digits")
            >>> images.channels
            1
        """
        return self.pixels.shape[1]

    def in_channels(self, channels: int) -> "Images":
        """Convert grey images to colour, or colour images to grey.

        Args:
            channels: Number of channels: C, or 1 or 3 if C is 1 or 3.

        Returns:
            Images of shape (N, channels, H, W); the images themselves if nothing changes.

        Raises:
            UserError: If images have more channels, which cannot be converted.

        Example:
            >>> images, _ = hs.data.load_data("digits")
            >>> images.in_channels(3).pixels.shape
            torch.Size([1137, 3, 8, 8])
        """
        if self.channels == channels:
            return self
        if not {self.channels, channels} <= {1, 3}:
            raise UserError(
                f"the encoder takes images with {pluralize(channels, 'channel')}, but these have {self.channels}"
            )
        # in parts: as float32, all images would take four times their memory
        parts = [grey(part.float()).round().to(torch.uint8) for part in self.pixels.split(10_000)]
        return replace(self, pixels=torch.cat(parts).expand(-1, channels, -1, -1).contiguous())

    def decoded(self, side: int, workers: int, most: int, **unused: object) -> "Images":
        """Return the images themselves, which are already decoded.

        Args:
            side: Not used. See `StreamedImages.decoded`.
            workers: Not used.
            most: Not used.
            **unused: Not used.

        Example:
            >>> images, _ = hs.data.load_data("digits")
            >>> images.decoded(side=32, workers=0, most=100) is images
            True
        """
        return self

    def squares(self, side: int, workers: int) -> Iterator[Tensor]:
        """All pixels, 4,096 images at a time.

        Args:
            side: Not used: images in memory keep their size.
            workers: Not used.

        Returns:
            An iterator of tensors of shape (B, C, H, W), uint8.

        Example:
            >>> images, _ = hs.data.load_data("digits")
            >>> [part.shape for part in images.squares(side=8, workers=0)]
            [torch.Size([1137, 1, 8, 8])]
        """
        return iter(self.pixels.split(4096))

    def squared(self, side: int) -> "Images":
        """The central squares of the images, resized as image files are.

        Args:
            side: Side of the squares in pixels.

        Returns:
            Images of shape (N, C, side, side); the images themselves if they have that size.

        Example:
            >>> images, _ = hs.data.load_data("digits")
            >>> images[torch.arange(3)].squared(side=16).pixels.shape
            torch.Size([3, 1, 16, 16])
        """
        if self.pixels.shape[2:] == (side, side):
            return self
        squares = [torch.tensor(middle(image.expand(3, -1, -1), side)) for image in self.pixels.cpu()]
        pixels = torch.stack(squares)[:, : self.channels]
        return replace(self, pixels=pixels.to(self.pixels.device))

    def names(self, numbers: Tensor) -> list[str]:
        """The names of images in messages.

        Args:
            numbers: Indices of the images, shape (M,).

        Example:
            >>> hs.data.load_data("digits")[0].names(torch.tensor([3, 7]))
            ['image 3', 'image 7']
        """
        return [f"image {number}" for number in numbers.tolist()]

    def loader(
        self,
        pipeline: ViewPipeline,
        seed: int,
        device: torch.device,
        workers: int = 0,
        progress: bool = False,
        cache: str = "off",
    ) -> "MemoryLoader":
        """Make a loader, which gives batches of views of these images.

        Args:
            pipeline: The views.
            seed: Seed of random views.
            device: Device of the batches; the images are moved to it.
            workers: Not used: views are made on the device.
            progress: Not used.
            cache: Not used: the images are in memory.

        Returns:
            A `Loader`.

        Example:
            >>> images, _ = hs.data.load_data("digits")
            >>> pipeline = hs.data.Dataset.resolve(hs.data.DataSpec("digits")).pipeline(size=None)
            >>> loader = images.loader(pipeline, seed=0, device=torch.device("cpu"))
            >>> inputs, sample = next(loader.centers())
            >>> inputs.shape, sample[:3]
            (torch.Size([500, 1, 8, 8]), tensor([0, 1, 2]))
        """
        from hypersphere.data.loader import MemoryLoader

        return MemoryLoader(self.to(device), Views(pipeline, seed))

    def contains(self, others: "Images") -> bool:
        """Whether the first image of `others` has the same pixels as one of these images.

        Args:
            others: Other images, at least one.

        Example:
            >>> train, held_out = hs.data.load_data("digits")
            >>> train.contains(train), train.contains(held_out)
            (True, False)
        """
        if self.pixels.shape[1:] != others.pixels.shape[1:]:
            return False
        return bool((self.pixels == others.pixels[0]).flatten(1).all(1).any())


def fingerprint(images: Iterable[Images]) -> str:
    """The first digits of a hash of pixels and labels."""
    found = hashlib.sha256()
    for part in images:
        found.update(part.pixels.cpu().numpy().data)
        found.update(part.labels.cpu().numpy().data)
    return found.hexdigest()[:12]
