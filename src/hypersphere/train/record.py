"""What is written down of a run: its log, what monitors see, and checkpoints."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from hypersphere.errors import Collapsed, Diverged
from hypersphere.train.log import Log
from hypersphere.train.plan import Plan
from hypersphere.train.stopping import undisturbed
from hypersphere.train.trainer import Trainer
from hypersphere.util.progress import Progress

SAVE_SECONDS = 120.0  # between checkpoints


class Monitor(Protocol):
    """Measures the encoder now and then; handed in, so that the loop knows nothing of evaluation."""

    every: int  # epochs

    def __call__(self, encoder: nn.Module) -> dict[str, float]: ...


Alarm = Callable[[int, dict[str, float]], None]  # told the epoch and what the monitors saw; may raise Collapsed


@dataclass
class Record:
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
            self.seen |= self._watch(log, epoch)
        if self.progress is not None:
            self.progress.update(step, _note(self.seen))
        if self.due(step) or step == plan.steps or self.stop:
            self.keep(terms)

    def _watch(self, log: Log, epoch: int) -> dict[str, float]:
        values: dict[str, float] = {}
        for monitor in self.monitors:
            if epoch % monitor.every == 0 or epoch == self.plan.epochs:
                values |= monitor(self.trainer.method.encoder)
        if values:
            log.write(self.trainer.step, {"epoch": epoch, **values})
            try:
                self.alarm(epoch, values)
            except Collapsed:
                self.save()
                raise
        return values

    def keep(self, terms: dict[str, Tensor]) -> None:
        """A checkpoint of this update, if there is none yet."""
        if self.kept < self.trainer.step:
            _check_finite(terms, self.trainer.step)
            with undisturbed(self.stop):
                self.save()
            self.kept = self.trainer.step


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
