"""The training loop."""

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Protocol

from hypersphere.data.loader import Order
from hypersphere.distributed.collectives import agreed, broadcast_from_first, run_on_first
from hypersphere.methods import Batch, Features
from hypersphere.optim import warmup_cosine
from hypersphere.train.capture import CapturedUpdate
from hypersphere.train.epoch_lines import EpochLines
from hypersphere.train.log import Log
from hypersphere.train.plan import Plan
from hypersphere.train.record import Alarm, Monitor, Record
from hypersphere.train.stopping import RunInterrupted, asked
from hypersphere.train.trainer import Trainer
from hypersphere.util.console import Progress
from hypersphere.util.signals import stop_requests


class Feed(Protocol):
    """Yields batches of views in a given order. It may prepare the next epoch during this one."""

    def __call__(self, order: Order) -> Generator[Batch, None, None]: ...


def train(
    trainer: Trainer,
    feed: Feed,
    plan: Plan,
    *,
    log: Log | None,
    save: Callable[[], None],
    monitors: Sequence[Monitor] = (),
    alarm: Alarm = lambda epoch, seen: None,
    progress: Progress | None = None,
    lines: EpochLines | None = None,
    features: Features | None = None,
) -> None:
    """Train from the trainer's step to the end of the plan.

    With several processes, only the first writes, measures and saves, and all stop after the same update.

    Args:
        trainer: The method with its optimizer.
        feed: Yields batches in the order of the plan.
        plan: Length, batch size and learning rate.
        log: Where to write metrics. None on processes other than the first.
        save: Writes a checkpoint.
        monitors: Measure the encoder every few epochs.
        alarm: Gets the epoch and the values of the monitors, and may raise `Collapsed` to end the run.
        progress: A progress display.
        lines: Shows a line for each epoch.
        features: Computes features of all images, for methods that cluster them.

    Raises:
        RunInterrupted: After SIGINT, SIGTERM or SIGHUP, when a checkpoint is saved.
        Diverged: If the loss is not finite.

    Example:
        >>> from hypersphere.train import train
        >>> train(trainer, feed, plan, log=log, save=save)  # doctest: +SKIP
    """
    agreed(trainer.join)
    method, start = trainer.method.train(), trainer.step
    update = CapturedUpdate(trainer.update, trainer.device) if trainer.capture else trainer.update
    coming = feed(plan.order(start, trainer.device))
    with stop_requests() as stop, contextlib.closing(coming):
        record = Record(trainer, plan, log, save, monitors, alarm, progress, stop, lines)
        for step in range(start, plan.steps):
            if step % plan.steps_per_epoch == 0:
                method.start_epoch(features)
                broadcast_from_first(method.buffers() if method.growing else ())  # rank 0 found clusters
            batches = _NextBatches(coming, plan.batch // plan.micro_batch)
            lr = warmup_cosine(step, plan.steps, plan.warmup_epochs * plan.steps_per_epoch, plan.lr)
            terms = update(batches, lr, step / plan.steps)
            trainer.step = step + 1
            signum = run_on_first(partial(record.after_update, terms, lr), partial(asked, stop))
            if signum:
                run_on_first(partial(record.save_once, terms))
                raise RunInterrupted(trainer.step, signum)


class _NextBatches(Sequence[Batch]):
    """The next micro-batches of a feed, each made when it is requested."""

    def __init__(self, coming: Iterator[Batch], length: int) -> None:
        self.coming, self.length = coming, length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Batch]:
        return itertools.islice(self.coming, self.length)

    def __getitem__(self, place):
        raise TypeError("batches can only be iterated")
