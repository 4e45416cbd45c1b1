"""The training loop: update after update, and what is written down."""

import contextlib
import itertools
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from hypersphere.collectives import as_on_first, first_does, mine
from hypersphere.draws import permutation
from hypersphere.errors import Collapsed, Diverged
from hypersphere.launch import launched
from hypersphere.methods import Batch, Features, Method
from hypersphere.optim import warmup_cosine
from hypersphere.progress import Progress
from hypersphere.train.capture import Captured
from hypersphere.train.log import Log
from hypersphere.train.trainer import Trainer

SAVE_SECONDS = 120.0  # between checkpoints


class Monitor(Protocol):
    """Measures the encoder now and then; handed in, so that the loop knows nothing of evaluation."""

    every: int  # epochs

    def __call__(self, encoder: nn.Module) -> dict[str, float]: ...


Alarm = Callable[[int, dict[str, float]], None]  # told the epoch and what the monitors saw; may raise Collapsed


Order = Iterable[tuple[int, Sequence[Tensor]]]  # epoch after epoch: the images of each micro-batch


class Feed(Protocol):
    """The views of images, micro-batch after micro-batch; what comes in the next epoch may be prepared in this one."""

    def __call__(self, order: Order) -> Generator[Batch, None, None]: ...


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
    save_every: int | None  # updates; None: SAVE_SECONDS

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


class Interrupted(KeyboardInterrupt):
    """A run that was asked to stop, and saved itself first."""

    def __init__(self, step: int, signum: int) -> None:
        super().__init__(f"stopped at step {step}")
        self.step, self.signum = step, signum


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
    trainer.join()
    method, start, launcher = trainer.method.train(), trainer.step, os.getppid()
    update = Captured(trainer.update, trainer.device) if trainer.capture else trainer.update
    coming = feed(plan.order(start, trainer.device))
    with _stop_requests() as stop, contextlib.closing(coming):
        record = _Record(trainer, plan, log, save, monitors, alarm, progress, stop)
        for step in range(start, plan.steps):
            if step % plan.steps_per_epoch == 0:
                method.start_epoch(features)
                as_on_first(method.buffers() if method.growing else ())  # clusters were found
            batches = _Next(coming, plan.batch // plan.micro_batch)
            lr = warmup_cosine(step, plan.steps, plan.warmup_epochs * plan.steps_per_epoch, plan.lr)
            terms = update(batches, lr, step / plan.steps)
            trainer.step = step + 1
            signum = first_does(partial(record.after_update, terms, lr), partial(_asked, stop, launcher))
            if signum:
                first_does(partial(record.keep, terms))
                raise Interrupted(trainer.step, signum)


@dataclass
class _Record:
    """What is written down after an update: the log, what monitors see, the checkpoint when it is time for one."""

    trainer: Trainer
    plan: Plan
    log: Log | None
    save: Callable[[], None]
    monitors: Sequence[Monitor]
    alarm: Alarm
    progress: Progress | None
    stop: list[int]

    def __post_init__(self) -> None:
        self.seen: dict[str, float] = {}
        self.due, self.kept = _saving(self.plan.save_every), 0

    def after_update(self, terms: dict[str, Tensor], lr: float) -> None:
        step, plan, log = self.trainer.step, self.plan, self.log
        assert log is not None
        self.seen |= _write(log, step, plan, terms, lr)
        epoch, place = divmod(step, plan.steps_per_epoch)
        if place == 0:
            watched = (self.monitors, self.trainer.method, self.alarm, self.save)
            self.seen |= _monitor(log, step, epoch, plan.epochs, *watched)
        if self.progress is not None:
            self.progress.update(step, _note(self.seen))
        if self.due(step) or step == plan.steps or self.stop:
            self.keep(terms)

    def keep(self, terms: dict[str, Tensor]) -> None:
        """A checkpoint of this update, if there is none yet."""
        if self.kept < self.trainer.step:
            _check_finite(terms, self.trainer.step)
            with _undisturbed(self.stop):
                self.save()
            self.kept = self.trainer.step


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


def _write(log: Log, step: int, plan: Plan, terms: dict[str, Tensor], lr: float) -> dict[str, float]:
    if step % plan.log_every and step != plan.steps:
        return {}
    _check_finite(terms, step)
    values = {name: float(value) for name, value in terms.items()}
    log.write(step, {**values, "lr": lr})
    return values


def _saving(every: int | None) -> Callable[[int], bool]:
    """Is it time for a checkpoint after this update? By the clock they cost little, whatever an update takes."""
    last = time.monotonic()

    def due(step: int) -> bool:
        nonlocal last
        if every is not None:
            return step % every == 0
        now = time.monotonic()
        if now - last < SAVE_SECONDS:
            return False
        last = now
        return True

    return due


# what the progress display shows of what was seen, and how
_SHOWN = {
    "loss": "loss {:.3f}",
    "regularizer": "of it regularizer {:.3f}",
    "knn": "k-NN {:.1f} %",
    "uniformity_of_features": "G2 {:.2f}",
    "effective_rank": "rank {:.0f}",
}


def _note(seen: dict[str, float]) -> str:
    return ", ".join(text.format(seen[name]) for name, text in _SHOWN.items() if name in seen)


def _check_finite(terms: dict[str, Tensor], step: int) -> None:
    loss = float(terms["loss"])
    if not math.isfinite(loss):
        raise Diverged(f"the loss is {loss} at step {step}: a smaller `lr` or `precision` float32 may help")


def _monitor(
    log: Log,
    step: int,
    epoch: int,
    last: int,
    monitors: Sequence[Monitor],
    method: Method,
    alarm: Alarm,
    save: Callable[[], None],
) -> dict[str, float]:
    values: dict[str, float] = {}
    for monitor in monitors:
        if epoch % monitor.every == 0 or epoch == last:
            values |= monitor(method.encoder)
    if values:
        log.write(step, {"epoch": epoch, **values})
        try:
            alarm(epoch, values)
        except Collapsed:
            save()
            raise
    return values


def _asked(stop: list[int], launcher: int) -> int:
    """The signal that asks to stop, or 0. Processes whose launcher is gone stop as well: nobody else would end them."""
    gone = launched() > 1 and os.getppid() != launcher
    return stop[0] if stop else signal.SIGTERM if gone else 0


@contextlib.contextmanager
def _stop_requests() -> Iterator[list[int]]:
    """Collects the first SIGINT or SIGTERM; a second one acts at once."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def request(signum: int, frame: Any) -> None:
        caught.append(signum)
        for s, handler in before.items():
            signal.signal(s, handler)

    for s in before:
        signal.signal(s, request)
    try:
        yield caught
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


@contextlib.contextmanager
def _undisturbed(caught: list[int]) -> Iterator[None]:
    """SIGINT and SIGTERM are only collected: impatience must not cost the checkpoint. Nor must workers that end of it,
    at which torch would raise."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.signal(s, lambda signum, frame: caught.append(signum)) for s in (signal.SIGINT, signal.SIGTERM)}
    if hasattr(signal, "SIGCHLD"):
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
