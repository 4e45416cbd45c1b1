"""A line for each epoch of a run: its loss, what was measured, the speed and the time left."""

import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from hypersphere.train.plan import Plan
from hypersphere.util.console import Progress, duration

EVERY, RARELY = 1.0, 10.0  # least seconds between two lines at the start, and later, if epochs are shorter
ENOUGH = 2.0  # seconds of updates that tell how long an update takes

Describe = Callable[[Mapping[str, float]], str]  # what was measured after an epoch, in words


class EpochLines:
    """Shows a line after an epoch: at most about one a second, later one in ten seconds.

    Args:
        plan: Length of the run.
        step: Step at which this process starts.
        progress: Shows the lines.
        describe: What the monitors measured, in words; empty if they measured nothing.
        on_pace: Gets the seconds of an update once, soon after the start.
        warm_up: Updates before the pace is measured, such as those that compile kernels.
    """

    def __init__(
        self,
        plan: Plan,
        step: int,
        progress: Progress,
        describe: Describe = lambda measured: "",
        on_pace: Callable[[float], None] = lambda seconds: None,
        warm_up: int = 1,
    ) -> None:
        self.plan, self.progress, self.describe, self.on_pace = plan, progress, describe, on_pace
        self.began = self.epoch_began = time.monotonic()
        self.first = self.step = step
        self.reference = (step, self.began)  # of the time left: after one epoch its end
        self.warm = step + warm_up
        self.warm_since: float | None = None
        self.shown = self.shown_measured = -RARELY
        self._start_epoch()

    def _start_epoch(self) -> None:
        self.epoch_began, self.epoch_step = time.monotonic(), self.step
        self.names: tuple[str, ...] = ()
        self.sums: Tensor | None = None

    def after_update(self, step: int, terms: Mapping[str, Tensor]) -> None:
        """Add the loss terms of an update."""
        self.step, self.names = step, tuple(terms)
        values = torch.stack([value.detach().float() for value in terms.values()])
        self.sums = values if self.sums is None else self.sums + values
        if self.step >= self.warm:
            self._measure_pace()

    def _measure_pace(self) -> None:
        if self.warm_since is None:
            self._wait()
            self.warm_since = time.monotonic()
        elif time.monotonic() - self.warm_since >= ENOUGH:
            self._wait()
            seconds = (time.monotonic() - self.warm_since) / (self.step - self.warm)
            self.warm = self.plan.steps + 1
            self.on_pace(seconds)

    def _wait(self) -> None:
        """Wait until the device has done what it was given."""
        assert self.sums is not None
        float(self.sums[0])

    def after_epoch(self) -> None:
        """Take the mean loss and the speed of an epoch, before it is measured."""
        assert self.sums is not None
        updates = self.step - self.epoch_step
        self.means = dict(zip(self.names, (self.sums / updates).tolist(), strict=True))
        self.epoch_ended = time.monotonic()
        self.speed = updates * self.plan.batch / max(1e-9, self.epoch_ended - self.epoch_began)

    def show(self, epoch: int, measured: Mapping[str, float]) -> None:
        """Show the line of an epoch after it is measured, unless one was shown a moment ago."""
        now = time.monotonic()
        if self.warm_since is not None:
            self.warm_since += now - self.epoch_ended  # measuring is not part of the pace
        words = self.describe(measured)
        pause = min(RARELY, max(EVERY, (now - self.began) / 5))
        due = now - self.shown >= pause or (words and now - self.shown_measured >= EVERY)
        if due or epoch == self.plan.epochs:
            self.shown, self.shown_measured = now, now if words else self.shown_measured
            parts = [self._losses(), words, f"{self.speed:,.{self.speed < 10:d}f} images/s", self._left(now)]
            count = f"{epoch:{len(str(self.plan.epochs))}}/{self.plan.epochs}"
            self.progress.line(f"epoch {count}: {', '.join(filter(None, parts))}")
        if self.reference == (self.first, self.began):
            self.reference = (self.step, now)  # the first epoch is slower: it compiles, and fills caches
        self._start_epoch()

    def _losses(self) -> str:
        terms = {name: value for name, value in self.means.items() if name != "loss"}
        several = f" ({', '.join(f'{name} {value:.3f}' for name, value in terms.items())})" if len(terms) > 1 else ""
        return f"loss {self.means['loss']:.3f}{several}"

    def _left(self, now: float) -> str:
        if self.step >= self.plan.steps:
            return f"{duration(now - self.began)} in all"
        step, since = self.reference
        limit = "up to " * (since == self.began)  # since the first epoch is slower
        return f"{limit}{duration((now - since) / (self.step - step) * (self.plan.steps - self.step))} left"
