"""A set of small images held in memory as bytes."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Images:
    pixels: Tensor  # N × C × H × W, uint8
    labels: Tensor  # N, int64; −1: unknown
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: Tensor) -> "Images":
        return replace(self, pixels=self.pixels[index], labels=self.labels[index])

    def to(self, device: torch.device) -> "Images":
        return replace(self, pixels=self.pixels.to(device), labels=self.labels.to(device))

    def with_unlabelled(self, pixels: Tensor) -> "Images":
        """These images, then those."""
        unknown = self.labels.new_full((len(pixels),), -1)
        return replace(self, pixels=torch.cat([self.pixels, pixels]), labels=torch.cat([self.labels, unknown]))

    @property
    def labelled(self) -> "Images":
        """Those whose label is known: all that a probe can use."""
        known = self.labels >= 0
        return self if bool(known.all()) else self[known]

    @property
    def channels(self) -> int:
        return self.pixels.shape[1]
