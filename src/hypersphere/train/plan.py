"""The plan of a run: its length, and the order of its images."""

from dataclasses import dataclass

import torch

from hypersphere.data.loader import Order
from hypersphere.distributed.collectives import mine
from hypersphere.util.random_numbers import permutation


@dataclass(frozen=True)
class Plan:
    """Length, batch size and learning rate of a run.

    Args:
        images: Number of training images.
        epochs: Number of epochs.
        batch: Images per update. An epoch leaves out images that do not fill a batch.
        micro_batch: Images computed at once; gradients of a batch are added up.
        lr: Learning rate after the warmup.
        warmup_epochs: Epochs of the warmup.
        seed: Seed of the order.
        log_every: Updates between lines of the log.
        save_every: Updates between checkpoints. None: every two minutes.

    Example:
        >>> from hypersphere.train import Plan
        >>> plan = Plan(100, 2, batch=32, micro_batch=16, lr=0.1, warmup_epochs=0, seed=0, log_every=1, save_every=None)
        >>> plan.steps
        6
        >>> [len(batches) for _, batches in plan.order(start=0, device=torch.device("cpu"))]
        [6, 6]
    """

    images: int
    epochs: int
    batch: int
    micro_batch: int
    lr: float
    warmup_epochs: int
    seed: int
    log_every: int
    save_every: int | None

    @property
    def steps_per_epoch(self) -> int:
        return self.images // self.batch

    @property
    def steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    def order(self, start: int, device: torch.device) -> Order:
        """This process's share of the images from an update on: a function of the seed and the epoch."""
        first, place = divmod(start, self.steps_per_epoch)
        for epoch in range(first, self.epochs):
            whole = permutation(self.images, seed=self.seed, epoch=epoch, device=device)
            rest = whole[place * self.batch : self.steps_per_epoch * self.batch]
            yield epoch, [mine(samples) for samples in rest.split(self.micro_batch)]
            place = 0
