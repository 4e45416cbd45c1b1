"""Loaders: batches of views of images, from memory or read by worker processes.

Training, probes and diagnostics use a `Loader` and do not depend on where the images come from.
"""

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from hypersphere.data.images import Images
from hypersphere.data.pixel_cache import CachedReader, Place, keep_decoded, place_of
from hypersphere.data.streamed_images import StreamedImages
from hypersphere.data.worker_stream import Decoded, Make, Reader, Stream, Wanted, used_places
from hypersphere.util.console import progress_bar
from hypersphere.util.random_numbers import PROBE, VIEWS, Key
from hypersphere.views import ViewPipeline, Views, evaluation_view, with_views
from hypersphere.views.crops import crop_draws, crops, decode_side, finished, middle_of
from hypersphere.views.packed import PackedImages, packed_views

View = Callable[[Tensor], Tensor]  # uint8 images → input of the encoder
Order = Iterable[tuple[int, Sequence[Tensor]]]  # (epoch, sample indices of each of its batches)


def center_view(pipeline: ViewPipeline) -> View:
    """The evaluation view: a function that maps uint8 images to their normalized center crops."""
    return partial(evaluation_view, recipe=pipeline)


class Batch(NamedTuple):
    """Views of B images, the input of a method.

    Attributes:
        views: One tensor of shape (B, C, H, W) for each view, normalized.
        sample: Tensor of shape (B,), int64: indices of the images in the dataset.
        label: Tensor of shape (B,), int64, −1 if unknown. None if the dataset has no labels.

    Example:
        >>> batch = hs.data.Batch((torch.randn(4, 3, 32, 32), torch.randn(4, 3, 32, 32)), torch.arange(4), None)
        >>> len(batch.views), batch.views[0].shape
        (2, torch.Size([4, 3, 32, 32]))
    """

    views: tuple[Tensor, ...]
    sample: Tensor
    label: Tensor | None


class Loader(Protocol):
    """Batches of views of N images, on one device: the interface of all loaders.

    `Images.loader` and `Listing.loader` make loaders. Indexing with a tensor gives a loader of these images.

    Example:
        >>> dataset = hs.data.Dataset.resolve(hs.data.DataSpec("digits"))
        >>> loader = dataset.split("test").train.loader(dataset.pipeline(None), seed=0, device=torch.device("cpu"))
        >>> batch = next(loader.training([(0, [torch.arange(16)])], torch.float32))
        >>> [view.shape for view in batch.views]
        [torch.Size([16, 1, 8, 8]), torch.Size([16, 1, 8, 8])]
    """

    @property
    def unreadable(self) -> dict[Path | str, str]:
        """Images that could not be read so far, with the reasons."""

    @property
    def labels(self) -> Tensor:
        """Tensor of shape (N,), int64, on the device; −1 if unknown."""

    @property
    def classes(self) -> tuple[str, ...]: ...

    @property
    def at_once(self) -> int:
        """Number of images in an evaluation batch."""

    @property
    def labelled(self) -> Self:
        """A loader of the images with a known label, which probes use."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Tensor) -> Self: ...

    def prepare(self) -> None:
        """Decode the images once if they are to be kept, before other progress is shown. `training` does it, too."""

    def training(self, order: Order, dtype: torch.dtype) -> Generator[Batch, None, None]:
        """Random training views, batch by batch. Workers may prepare the next epoch during this one."""

    def centers(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Evaluation views of all readable images: (inputs, sample).

        `inputs` may have more rows than `sample`, so that a GPU sees batches of one size. Then only the last
        `len(sample)` rows count.
        """

    def cropped(self, order: Iterable[tuple[int, Tensor]], dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
        """Random crops for a probe: (inputs, labels) of each (epoch, sample) in `order`."""

    def augmented(self, views: int, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
        """Batches of `views` full-size training views of each readable image, in order. Each call gives the same."""


@dataclass(frozen=True)
class MemoryLoader:
    """Loader of images in memory; makes views on their device."""

    images: Images
    views: Views
    unreadable: dict[Path | str, str] = field(default_factory=dict)

    @property
    def labels(self) -> Tensor:
        return self.images.labels

    @property
    def classes(self) -> tuple[str, ...]:
        return self.images.classes

    @property
    def at_once(self) -> int:
        return images_at_once(self.images.pixels, center_view(self.views.recipe))

    @property
    def labelled(self) -> "MemoryLoader":
        return replace(self, images=self.images.labelled)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Tensor) -> "MemoryLoader":
        return replace(self, images=self.images[index])

    def prepare(self) -> None:
        pass

    def training(self, order: Order, dtype: torch.dtype) -> Generator[Batch, None, None]:
        for epoch, samples in order:
            for sample in samples:
                views = self.views.training(self.images.pixels, sample, epoch, dtype)
                yield Batch(views, sample, self.labels[sample])

    def centers(self) -> Iterator[tuple[Tensor, Tensor]]:
        pixels = self.images.pixels
        for part, sample in equal_parts(pixels, self.at_once):
            yield evaluation_view(part, self.views.recipe), sample

    def cropped(self, order: Iterable[tuple[int, Tensor]], dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
        for epoch, sample in order:
            yield self.views.probing(self.images.pixels, sample, epoch, dtype), self.labels[sample]

    def augmented(self, views: int, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
        make = Views(with_views(self.views.recipe, views), self.views.seed)
        for sample in torch.arange(len(self), device=self.labels.device).split(max(1, self.at_once // 4)):
            yield make.training(self.images.pixels, sample, 0, dtype)


def images_at_once(pixels: Tensor, view: View) -> int:
    """Number of images in an evaluation batch: enough to keep a GPU busy, few enough for a CPU's cache."""
    most = images_that_fit(pixels, view)
    return most if pixels.is_cuda else min(500, most)


def images_that_fit(pixels: Tensor, view: View) -> int:
    """Number of images with two million pixels, stored or as views: their activations fit into memory."""
    return max(1, 2_097_152 // max(math.prod(images.shape[2:]) for images in (pixels, view(pixels[:1]))))


def equal_parts(pixels: Tensor, at_once: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(part, indices of its last rows). On a GPU all parts have one size, so that cuDNN tunes only once."""
    samples = torch.arange(len(pixels), device=pixels.device).split(at_once)
    for part, sample in zip(pixels.split(at_once), samples, strict=True):
        few = pixels.is_cuda and len(part) < at_once and len(samples) > 1
        yield (pixels[-at_once:] if few else part), sample


@dataclass(frozen=True)
class StreamLoader:
    """Loader of images that workers read. A worker crops all views of an image, the device does the rest."""

    images: StreamedImages
    pipeline: ViewPipeline
    seed: int
    device: torch.device
    workers: int
    progress: bool = False
    cache: Place = "off"
    unreadable: dict[Path | str, str] = field(default_factory=dict)
    kept: dict[int, tuple[Reader, PackedImages | None]] = field(default_factory=dict)  # see `source`

    @property
    def labels(self) -> Tensor:
        if self.images.labels is None:
            return torch.full((len(self),), -1, device=self.device)
        return self.images.labels.to(self.device)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.images.classes

    @property
    def at_once(self) -> int:
        return 256 if self.device.type == "cuda" else 64

    @property
    def labelled(self) -> "StreamLoader":
        known = self.labels >= 0
        return self if bool(known.all()) else self[known.nonzero()[:, 0]]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Tensor) -> "StreamLoader":
        return replace(self, images=self.images[index.cpu()], kept={})

    def prepare(self) -> None:
        self.source(decode_side(self.pipeline), self.progress)

    def source(self, side: int, progress: bool = False) -> tuple[Reader, PackedImages | None]:
        """The images to take random views of, decoded at a side: a reader, and a copy of them in GPU memory."""
        if side not in self.kept:
            place, device = self.cache, self.device
            if self.images.channels != 3:  # the kernels for packed images make views of three channels
                place, device = ("memory" if place == "gpu" else place), torch.device("cpu")
            cached, on_gpu = keep_decoded(self.images.reader, side, place, device, self.workers, progress)
            self.kept[side] = (cached or self.images.reader, cached.on_gpu(self.device) if cached and on_gpu else None)
        return self.kept[side]

    def crops(
        self, pipeline: ViewPipeline, dtype: torch.dtype, draws: int = VIEWS, fill: bool = True
    ) -> "Crops | PackedCrops":
        """Random views of the images; `draws` is the number of the random stream, `fill` replaces unreadable images."""
        on_gpu = self.source(decode_side(pipeline))[1] is not None
        return (PackedCrops if on_gpu else Crops)(self, pipeline, dtype, draws, fill)

    def training(self, order: Order, dtype: torch.dtype) -> Generator[Batch, None, None]:
        return self.crops(self.pipeline, dtype).batches(order)

    def centers(self) -> Iterator[tuple[Tensor, Tensor]]:
        side = self.pipeline.resize or self.pipeline.size
        stream = self.stream(self.images.reader, partial(middle_of, side=side), side, fill=False)
        with progress_bar("reading images", len(self), show=self.progress) as bar:
            for pixels, sample in stream.every(self.at_once):
                yield evaluation_view(pixels.to(self.device, non_blocking=True), self.pipeline), sample.to(self.device)
                bar.update(int(sample[-1]) + 1)

    def cropped(self, order: Iterable[tuple[int, Tensor]], dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
        pipeline = replace(self.pipeline, augmentations=(self.pipeline.probe,))
        for batch in self.crops(pipeline, dtype, draws=PROBE).batches((epoch, [sample]) for epoch, sample in order):
            assert batch.label is not None
            yield batch.views[0], batch.label

    def augmented(self, views: int, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
        pipeline = with_views(self.pipeline, views)
        known = decode_side(pipeline) in self.kept
        made = (self if known else replace(self, cache="off", kept={})).crops(pipeline, dtype, fill=False)  # read once
        parts = torch.arange(len(self)).split(self.at_once // 4)
        with progress_bar("reading views", len(self), show=self.progress) as bar:
            for batch in made.batches([(0, parts)]):
                yield batch.views
                bar.update(int(batch.sample[-1]) + 1)

    def stream(self, reader: Reader, make: Make, side: int, fill: bool) -> Stream:
        return Stream(
            reader,
            make,
            side=side,
            workers=self.workers,
            pin=self.device.type == "cuda",
            fill=fill,
            unreadable=self.unreadable,
        )


def decode_place(
    images: Images | StreamedImages, pipeline: ViewPipeline, cache: Place, device: torch.device
) -> tuple[Place | Literal["nowhere"], float]:
    """Where a loader would keep decoded images, and their bytes; "nowhere" if they are in memory already."""
    if isinstance(images, Images):
        return "nowhere", 0.0
    return place_of(images.reader, decode_side(pipeline), cache, device)


class Crops:
    """Random views of streamed images. Workers crop them; the device applies the other augmentations.

    Args:
        loader: The images.
        pipeline: The views.
        dtype: Dtype of the views.
        draws: Number of the random stream for crops and colours.
        fill: Whether to replace unreadable images.
    """

    def __init__(
        self, loader: StreamLoader, pipeline: ViewPipeline, dtype: torch.dtype, draws: int = VIEWS, fill: bool = True
    ) -> None:
        self.pipeline, self.device, self.dtype = pipeline, loader.device, dtype
        self.key = Key(loader.seed, 0, draws)
        self.labels = None if loader.images.labels is None else loader.labels
        side = decode_side(pipeline)
        self.stream = loader.stream(loader.source(side)[0], partial(crops, recipe=pipeline), side, fill)

    def batches(self, order: Order) -> Generator[Batch, None, None]:
        """Yield batches. Workers start the next epoch while the last batches of this one are in use."""
        epochs: deque[int] = deque()  # epochs of the requested batches

        def wanted() -> Iterator[list[Wanted]]:
            for epoch, samples in order:
                for sample in torch.cat(list(samples)).cpu().split([len(sample) for sample in samples]):
                    epochs.append(epoch)
                    yield self.wanted(sample, epoch)

        for decoded in self.stream(wanted()):
            yield self.finish(decoded, epochs.popleft())

    def wanted(self, sample: Tensor, epoch: int) -> list[Wanted]:
        numbers = crop_draws(self.pipeline, sample, self.key._replace(epoch=epoch))
        return [Wanted(number, how) for number, how in zip(sample.tolist(), numbers, strict=True)]

    def finish(self, decoded: Decoded, epoch: int) -> Batch:
        """Move a batch to the device and finish its views there."""
        pinned = decoded.sample.pin_memory() if self.device.type == "cuda" else decoded.sample
        pixels, sample = (x.to(self.device, non_blocking=True) for x in (decoded.pixels, pinned))
        views = finished(self.pipeline, pixels, sample, self.key._replace(epoch=epoch), self.dtype)
        return Batch(views, sample, None if self.labels is None else self.labels[sample])


class PackedCrops:
    """Random views of decoded images in GPU memory; arguments as for `Crops`."""

    def __init__(
        self, loader: StreamLoader, pipeline: ViewPipeline, dtype: torch.dtype, draws: int = VIEWS, fill: bool = True
    ) -> None:
        reader, images = loader.source(decode_side(pipeline))
        assert isinstance(reader, CachedReader)
        assert images is not None
        self.images, self.reasons, self.fill = images, reader.tables.reasons, fill
        self.pipeline, self.dtype, self.key = pipeline, dtype, Key(loader.seed, 0, draws)
        self.device = loader.device
        self.labels = None if loader.images.labels is None else loader.labels
        loader.unreadable.update({reader.name(number): reason for number, reason in self.reasons.items()})

    def batches(self, order: Order) -> Generator[Batch, None, None]:
        """Yield batches."""
        for epoch, samples in order:
            for sample in map(self.readable, samples):
                if len(sample):
                    yield self.batch(sample.to(self.device, non_blocking=True), epoch)

    def batch(self, sample: Tensor, epoch: int) -> Batch:
        hows, key = self.pipeline.augmentations, self.key._replace(epoch=epoch)
        views = packed_views(hows, self.pipeline, self.images.chosen(sample), sample, key, self.dtype)
        return Batch(views, sample, None if self.labels is None else self.labels[sample])

    def readable(self, sample: Tensor) -> Tensor:
        """The readable images of a batch; with `fill`, others of the batch or the next ones replace the rest."""
        if not self.reasons:
            return sample
        numbers = sample.tolist()
        holes = [place for place, number in enumerate(numbers) if number in self.reasons]
        used = [numbers[place] for place in used_places(len(numbers), holes, self.fill)]
        if not used and self.fill:
            used = [self._next_readable(number) for number in numbers]
        return torch.tensor(used)

    def _next_readable(self, number: int) -> int:
        count = len(self.images.starts)
        after = ((number + step) % count for step in range(count))
        return next(other for other in after if other not in self.reasons)
