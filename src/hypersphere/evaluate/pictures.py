"""Images as probes show them to an encoder: the middle of each, or fresh crops."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
from torch import Tensor, nn

from hypersphere.data import Images
from hypersphere.evaluate.features import View, at_once, extract
from hypersphere.views import Recipe, Views, evaluation_view, with_views


class Pictures(Protocol):
    @property
    def labels(self) -> Tensor:
        """N, on the encoder's device."""

    @property
    def classes(self) -> tuple[str, ...]: ...

    @property
    def at_once(self) -> int:
        """How many an encoder sees at once."""

    @property
    def labelled(self) -> Self:
        """Those whose label is known: all that a probe can use."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Tensor) -> Self: ...

    def features(self, encoder: nn.Module, precision: torch.dtype) -> tuple[Tensor, Tensor]:
        """Of the middles, in float32, by the frozen encoder; and their labels. What cannot be read is left out."""

    def cropped(self, order: Iterable[tuple[int, Tensor]], dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
        """Of each epoch and sample: inputs of the encoder and their labels."""

    def augmented(self, views: int, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
        """Batches of `views` augmented views of each image, in order: views of full size, as in training, the same in
        each call. Images that cannot be read are left out."""


@dataclass(frozen=True)
class InMemory:
    images: Images
    views: Views

    @property
    def labels(self) -> Tensor:
        return self.images.labels

    @property
    def classes(self) -> tuple[str, ...]:
        return self.images.classes

    @property
    def at_once(self) -> int:
        return at_once(self.images.pixels, centre(self.views.recipe))

    @property
    def labelled(self) -> "InMemory":
        return replace(self, images=self.images.labelled)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Tensor) -> "InMemory":
        return replace(self, images=self.images[index])

    def features(self, encoder: nn.Module, precision: torch.dtype) -> tuple[Tensor, Tensor]:
        return extract(encoder, self.images.pixels, centre(self.views.recipe), precision=precision), self.labels

    def cropped(self, order: Iterable[tuple[int, Tensor]], dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
        for epoch, sample in order:
            yield self.views.probing(self.images.pixels, sample, epoch, dtype), self.labels[sample]

    def augmented(self, views: int, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
        make = Views(with_views(self.views.recipe, views), self.views.seed)
        for sample in torch.arange(len(self), device=self.labels.device).split(max(1, self.at_once // 4)):
            yield make.training(self.images.pixels, sample, 0, dtype)


def centre(recipe: Recipe) -> View:
    return lambda pixels: evaluation_view(pixels, recipe)
