"""The record of a run: its log, the values of monitors, and checkpoints."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from hypersphere.errors import Collapsed, Diverged
from hypersphere.train.epoch_lines import EpochLines
from hypersphere.train.log import Log
from hypersphere.train.plan import Plan
from hypersphere.train.stopping import without_interrupts
from hypersphere.train.trainer import Trainer
from hypersphere.util.console import Progress

SAVE_SECONDS = 120.0  # between checkpoints


class Monitor(Protocol):
    """A measurement of the encoder every few epochs. Passed in, so that the loop is independent of evaluation.

    Example:
        >>> class WeightNorm:
        ...     every = 10  # epochs
        ...     def __call__(self, encoder):
        ...         return {"norm": sum(p.detach().square().sum().item() for p in encoder.parameters())}
        >>> sorted(WeightNorm()(torch.nn.Linear(3, 2)))
        ['norm']
    """

    every: int  # epochs

    def __call__(self, encoder: nn.Module) -> dict[str, float]: ...


Alarm = Callable[
    [int, dict[str, float]], None
]  # gets the epoch, and the step with the values of the monitors; may raise Collapsed


@dataclass
class Record:
    """Writes the log, runs monitors and saves checkpoints after each update."""

    trainer: Trainer
    plan: Plan
    log: Log | None
    save: Callable[[], None]
    monitors: Sequence[Monitor]
    alarm: Alarm
    progress: Progress | None
    stop: list[int]
    lines: EpochLines | None = None

    def __post_init__(self) -> None:
        self.seen: dict[str, float] = {}
        self.due, self.saved = _save_schedule(self.plan.save_every), 0

    def after_update(self, terms: dict[str, Tensor], lr: float) -> None:
        step, plan, log = self.trainer.step, self.plan, self.log
        assert log is not None
        self.seen |= _write(log, step, plan, terms, lr)
        if self.lines is not None:
            self.lines.after_update(step, terms)
        epoch, place = divmod(step, plan.steps_per_epoch)
        if place == 0:
            self._after_epoch(log, epoch)
        if self.progress is not None:
            self.progress.update(step, _summary(self.seen))
        if self.due(step) or step == plan.steps or self.stop:
            self.save_once(terms)

    def _after_epoch(self, log: Log, epoch: int) -> None:
        if self.lines is not None:
            self.lines.after_epoch()
        measured = self._run_monitors(log, epoch)
        self.seen |= measured
        if self.lines is not None:
            self.lines.show(epoch, measured)

    def _run_monitors(self, log: Log, epoch: int) -> dict[str, float]:
        """Measure after the first and the last epoch, and every few in between."""
        values: dict[str, float] = {}
        for monitor in self.monitors:
            if epoch % monitor.every == 0 or epoch in (1, self.plan.epochs):
                values |= monitor(self.trainer.method.encoder)
        if values:
            log.write(self.trainer.step, {"epoch": epoch, **values})
            try:
                self.alarm(epoch, {"step": self.trainer.step, **values})
            except Collapsed:
                self.save()
                raise
        return values

    def save_once(self, terms: dict[str, Tensor]) -> None:
        """Save a checkpoint of this update, unless there is one."""
        if self.saved < self.trainer.step:
            _check_finite(terms, self.trainer.step)
            with without_interrupts(self.stop):
                self.save()
            self.saved = self.trainer.step


def _write(log: Log, step: int, plan: Plan, terms: dict[str, Tensor], lr: float) -> dict[str, float]:
    if step % plan.log_every and step != plan.steps:
        return {}
    _check_finite(terms, step)
    values = {name: float(value) for name, value in terms.items()}
    log.write(step, {**values, "lr": lr})
    return values


def _save_schedule(every: int | None) -> Callable[[int], bool]:
    """Whether a checkpoint is due after an update: every so many updates or, by default, after some time."""
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


# metrics in the progress display, with their formats
_SHOWN = {
    "loss": "loss {:.3f}",
    "knn": "k-NN {:.1f} %",
    "uniformity_of_features": "uniformity {:.2f}",
    "effective_rank": "rank {:.0f}",
}


def _summary(seen: dict[str, float]) -> str:
    return ", ".join(text.format(seen[name]) for name, text in _SHOWN.items() if name in seen)


def _check_finite(terms: dict[str, Tensor], step: int) -> None:
    loss = float(terms["loss"])
    if not math.isfinite(loss):
        raise Diverged(f"the loss is {loss} at step {step}: a smaller `lr` or `precision` float32 may help")
