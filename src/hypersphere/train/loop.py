"""The training loop: update after update."""

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Protocol

from hypersphere.distributed.collectives import agreed, as_on_first, first_does
from hypersphere.methods import Batch, Features
from hypersphere.optim import warmup_cosine
from hypersphere.train.capture import Captured
from hypersphere.train.log import Log
from hypersphere.train.plan import Order, Plan
from hypersphere.train.record import Alarm, Monitor, Record
from hypersphere.train.stopping import Interrupted, asked
from hypersphere.train.trainer import Trainer
from hypersphere.util.progress import Progress
from hypersphere.util.signals import stop_requests


class Feed(Protocol):
    """The views of images, micro-batch after micro-batch; what comes in the next epoch may be prepared in this one."""

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
    features: Features | None = None,
) -> None:
    """From the trainer's step to the end of the plan. A run interrupted by SIGINT or SIGTERM saves and raises.

    Of several processes the first alone writes, measures and saves (the others need no log), and all stop after the
    same update.
    """
    agreed(trainer.join)
    method, start = trainer.method.train(), trainer.step
    update = Captured(trainer.update, trainer.device) if trainer.capture else trainer.update
    coming = feed(plan.order(start, trainer.device))
    with stop_requests() as stop, contextlib.closing(coming):
        record = Record(trainer, plan, log, save, monitors, alarm, progress, stop)
        for step in range(start, plan.steps):
            if step % plan.steps_per_epoch == 0:
                method.start_epoch(features)
                as_on_first(method.buffers() if method.growing else ())  # clusters were found
            batches = _Next(coming, plan.batch // plan.micro_batch)
            lr = warmup_cosine(step, plan.steps, plan.warmup_epochs * plan.steps_per_epoch, plan.lr)
            terms = update(batches, lr, step / plan.steps)
            trainer.step = step + 1
            signum = first_does(partial(record.after_update, terms, lr), partial(asked, stop))
            if signum:
                first_does(partial(record.keep, terms))
                raise Interrupted(trainer.step, signum)


class _Next(Sequence[Batch]):
    """The next micro-batches of a feed, each made when it is asked for."""

    def __init__(self, coming: Iterator[Batch], length: int) -> None:
        self.coming, self.length = coming, length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Batch]:
        return itertools.islice(self.coming, self.length)

    def __getitem__(self, place):
        raise TypeError("batches come one after the other")
