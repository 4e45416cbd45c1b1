"""Image files as probes show them to an encoder: read anew each time, so that there may be more than memory holds."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from hypersphere.data import Listing
from hypersphere.data.stream import Stream
from hypersphere.errors import UserError
from hypersphere.evaluate.features import encode, frozen
from hypersphere.train.feed import FromFiles
from hypersphere.util.draws import PROBE
from hypersphere.util.progress import progress_bar
from hypersphere.views import Recipe, evaluation_view, with_views
from hypersphere.views.crops import middle_of


@dataclass(frozen=True)
class InFiles:
    """`Pictures` of files whose labels are known."""

    files: Listing
    recipe: Recipe
    seed: int
    device: torch.device
    workers: int
    progress: bool = False

    @property
    def labels(self) -> Tensor:
        return self.files.labels.to(self.device)  # type: ignore[union-attr]

    @property
    def classes(self) -> tuple[str, ...]:
        return self.files.classes

    @property
    def at_once(self) -> int:
        return 256 if self.device.type == "cuda" else 64

    @property
    def labelled(self) -> "InFiles":
        known = self.labels >= 0
        return self if bool(known.all()) else self[known.nonzero()[:, 0]]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: Tensor) -> "InFiles":
        return replace(self, files=self.files[index.cpu()])

    def features(self, encoder: nn.Module, precision: torch.dtype) -> tuple[Tensor, Tensor]:
        side = self.recipe.resize or self.recipe.size
        make, white, pin = partial(middle_of, side=side), self.files.white, self.device.type == "cuda"
        stream = Stream(self.files.paths, make, side=side, workers=self.workers, white=white, pin=pin, fill=False)
        features, samples = [], []
        with frozen(encoder), progress_bar("reading images", len(self), show=self.progress) as bar:
            for pixels, sample in stream.every(self.at_once):
                inputs = evaluation_view(pixels.to(self.device, non_blocking=True), self.recipe)
                features.append(encode(encoder, inputs, precision))
                samples.append(sample)
                bar.update(int(sample[-1]) + 1)
        if not samples:
            raise UserError(f"none of {len(self)} images could be read, such as {self.files.paths[0]}")
        return torch.cat(features), self.labels[torch.cat(samples).to(self.device)]

    def cropped(self, order: Iterable[tuple[int, Tensor]], dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
        recipe = replace(self.recipe, augmentations=(self.recipe.probe,))
        feed = FromFiles(self.files, recipe, self.seed, self.device, dtype, self.workers, draws=PROBE)
        for batch in feed((epoch, [sample]) for epoch, sample in order):
            assert batch.label is not None
            yield batch.views[0], batch.label

    def augmented(self, views: int, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
        recipe = with_views(self.recipe, views)
        feed = FromFiles(self.files, recipe, self.seed, self.device, dtype, self.workers, fill=False)
        parts = torch.arange(len(self)).split(self.at_once // 4)
        with progress_bar("reading views", len(self), show=self.progress) as bar:
            for decoded in feed.stream(feed.asked(sample, 0) for sample in parts):
                yield feed.finish(decoded, 0).views
                bar.update(int(decoded.sample[-1]) + 1)
