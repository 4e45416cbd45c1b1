"""How long a run is, and which images come when."""

from dataclasses import dataclass

import torch

from hypersphere.data.loader import Order
from hypersphere.distributed.collectives import mine
from hypersphere.util.draws import permutation


@dataclass(frozen=True)
class Plan:
    """How long, how much at once, and how fast."""

    images: int
    epochs: int
    batch: int  # images per update; those that do not fill one are left out of the epoch
    micro_batch: int  # images computed at once
    lr: float  # at its peak
    warmup_epochs: int
    seed: int
    log_every: int
    save_every: int | None  # updates; None: by the clock

    @property
    def steps_per_epoch(self) -> int:
        return self.images // self.batch

    @property
    def steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    def order(self, start: int, device: torch.device) -> Order:
        """Of the images, from an update on: a function of the seed and the epoch, and of that this process's share."""
        first, place = divmod(start, self.steps_per_epoch)
        for epoch in range(first, self.epochs):
            whole = permutation(self.images, seed=self.seed, epoch=epoch, device=device)
            rest = whole[place * self.batch : self.steps_per_epoch * self.batch]
            yield epoch, [mine(samples) for samples in rest.split(self.micro_batch)]
            place = 0
