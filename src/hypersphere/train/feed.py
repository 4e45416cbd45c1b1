"""Where the training loop's batches come from: images in memory, or files decoded as they are needed."""

from collections import deque
from collections.abc import Generator, Iterator
from functools import partial

import torch
from torch import Tensor

from hypersphere.data import Images
from hypersphere.data.folder import Listing
from hypersphere.data.stream import Decoded, Stream, Wanted
from hypersphere.methods import Batch
from hypersphere.train import Order
from hypersphere.util.draws import VIEWS
from hypersphere.views import Recipe, Views
from hypersphere.views.crops import crop_numbers, crops, finished, smallest_side


class FromMemory:
    """Views made on the device where the images lie, when asked for."""

    def __init__(self, images: Images, views: Views, dtype: torch.dtype) -> None:
        self.images, self.views, self.dtype = images, views, dtype

    def __call__(self, order: Order) -> Generator[Batch, None, None]:
        for epoch, samples in order:
            for sample in samples:
                views = self.views.training(self.images.pixels, sample, epoch, self.dtype)
                yield Batch(views, sample, self.images.labels[sample])


class FromFiles:
    """Each image decoded once by a worker, which crops all views of it; the rest is done on the device."""

    def __init__(
        self,
        files: Listing,
        recipe: Recipe,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
        workers: int,
        draws: int = VIEWS,
        fill: bool = True,
    ) -> None:
        """`draws`: the stream of random numbers that crops and colours are drawn from. `fill`: as `Stream` has it."""
        self.files, self.recipe, self.seed, self.device, self.dtype = files, recipe, seed, device, dtype
        self.draws = draws
        self.labels = None if files.labels is None else files.labels.to(device)
        make, side = partial(crops, recipe=recipe), smallest_side(recipe)
        pin = device.type == "cuda"
        self.stream = Stream(files.paths, make, side=side, workers=workers, white=files.white, pin=pin, fill=fill)

    def __call__(self, order: Order) -> Generator[Batch, None, None]:
        """Workers go on to the next epoch while the last batches of this one are learnt from."""
        epochs: deque[int] = deque()  # of the batches that are on their way

        def batches() -> Iterator[list[Wanted]]:
            for epoch, samples in order:
                for sample in torch.cat(list(samples)).cpu().split([len(sample) for sample in samples]):
                    epochs.append(epoch)
                    yield self.asked(sample, epoch)

        for decoded in self.stream(batches()):
            yield self.finish(decoded, epochs.popleft())

    def finish(self, decoded: Decoded, epoch: int) -> Batch:
        """What is done on the device."""
        pinned = decoded.sample.pin_memory() if self.device.type == "cuda" else decoded.sample
        pixels, sample = (x.to(self.device, non_blocking=True) for x in (decoded.pixels, pinned))
        views = finished(pixels, sample, self.recipe, self.seed, epoch, self.dtype, self.draws)
        return Batch(views, sample, None if self.labels is None else self.labels[sample])

    def asked(self, sample: Tensor, epoch: int) -> list[Wanted]:
        numbers = crop_numbers(self.recipe, sample, self.seed, epoch, self.draws)
        return [Wanted(number, how) for number, how in zip(sample.tolist(), numbers, strict=True)]
