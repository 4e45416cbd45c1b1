"""The training loop: views, loss, one update, and what is written down."""

import contextlib
import inspect
import itertools
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hypersphere.collectives import all_mean, as_on_first, first_does, mine, size
from hypersphere.draws import permutation
from hypersphere.errors import Collapsed, Diverged, UserError
from hypersphere.launch import launched
from hypersphere.methods import Batch, Features, Method, Step
from hypersphere.nn import keep_views_apart
from hypersphere.optim import warmup_cosine
from hypersphere.progress import Progress
from hypersphere.train.capture import Captured
from hypersphere.train.log import Log
from hypersphere.train.narrow import Narrowed

SAVE_SECONDS = 120.0  # between checkpoints


# buffers come out the same on all processes; torch has had two names for not sending them with each batch
_NAMES = inspect.signature(DistributedDataParallel).parameters
_BUFFERS_SENT = "forward_sync_buffers" if "forward_sync_buffers" in _NAMES else "broadcast_buffers"


class Monitor(Protocol):
    """Measures the encoder now and then; handed in, so that the loop knows nothing of evaluation."""

    every: int  # epochs

    def __call__(self, encoder: nn.Module) -> dict[str, float]: ...


Alarm = Callable[[int, dict[str, float]], None]  # told the epoch and what the monitors saw; may raise Collapsed


Order = Iterable[tuple[int, Sequence[Tensor]]]  # epoch after epoch: the images of each micro-batch


class Feed(Protocol):
    """The views of images, micro-batch after micro-batch; what comes in the next epoch may be prepared in this one."""

    def __call__(self, order: Order) -> Iterator[Batch]: ...


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


class Trainer:
    """What changes during a run: the method, its optimizer, the step."""

    def __init__(
        self,
        method: Method,
        optimizer: torch.optim.Optimizer,
        regularizer: Callable[[], Tensor] | None,
        device: torch.device,
        precision: torch.dtype,
        *,
        capture: bool = False,
        compile: bool = False,
    ) -> None:
        self.method, self.optimizer, self.regularizer = method, optimizer, regularizer
        self.device, self.step, self.capture = device, 0, capture
        narrow = device.type == "cuda" and precision != torch.float32
        self.loss_of: Callable[[Batch], Step] = Narrowed(method, precision) if narrow else method
        if compile:
            self.loss_of = torch.compile(method, dynamic=False)
        self.precision = precision
        self.autocast = torch.autocast(device.type, dtype=precision, enabled=precision != torch.float32)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == torch.float16)

    def join(self) -> None:
        """The other processes: each has its share of every micro-batch. Autocast converts weights one by one then, so
        that gradients travel while others are still computed."""
        if size() > 1:
            if not keep_views_apart(self.method):
                raise UserError("`encoder`: its kind of BatchNorm cannot be synchronized across processes")
            quiet: dict[str, Any] = {_BUFFERS_SENT: False}
            self.loss_of = DistributedDataParallel(self.method, **quiet)

    @property
    def input_type(self) -> torch.dtype:
        """Of the views: on a GPU the networks' own, so that no copy is made."""
        return self.precision if self.device.type == "cuda" else torch.float32

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """All but the method's own state."""
        for saved, own in zip(state["optimizer"]["param_groups"], self.optimizer.param_groups, strict=True):
            saved |= {name: own[name] for name in ("capturable", "foreach", "fused") if name in own}  # of this device
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["random"])
        if self.device.type == "cuda" and state["random_cuda"] is not None:
            torch.cuda.set_rng_state(state["random_cuda"], self.device)
        self.step = state["step"]

    def update(self, batches: Sequence[Batch], lr: float | Tensor, progress: float | Tensor) -> dict[str, Tensor]:
        """One step of the optimizer from the mean loss of equal micro-batches plus, once, the regularizer."""
        self.optimizer.zero_grad(set_to_none=True)  # an attempt that failed may have left some
        progress = torch.as_tensor(progress, device=self.device)
        for group in self.optimizer.param_groups:
            group.update(lr=group.get("rate", lr), progress=progress)
        self.method.before_step(progress)
        terms: dict[str, Tensor] = {}
        for number, batch in enumerate(batches, 1):
            with self._gradients_kept() if number < len(batches) else contextlib.nullcontext():
                with self.autocast:
                    loss, parts = _checked(self.loss_of(batch), self.method)
                self.scaler.scale(loss / len(batches)).backward()
            for name, value in {**parts, "loss": loss.detach()}.items():
                terms[name] = terms.get(name, 0) + value / len(batches)
        if size() > 1:
            terms = dict(zip(terms, all_mean(torch.stack(list(terms.values()))), strict=True))
        if self.regularizer is not None:  # the same on all processes
            energy = self.regularizer()
            if energy.requires_grad:
                self.scaler.scale(energy).backward()
            terms["regularizer"] = energy.detach()
            terms["loss"] = terms["loss"] + terms["regularizer"]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.method.after_step(progress)
        return terms

    def _gradients_kept(self) -> contextlib.AbstractContextManager[None]:
        """Inside, they are not yet exchanged with other processes."""
        together = isinstance(self.loss_of, DistributedDataParallel)
        return self.loss_of.no_sync() if together else contextlib.nullcontext()  # type: ignore[attr-defined]


def _checked(step: Any, method: Method) -> Step:
    """What a method's forward gave: a mistake in one's own is told."""
    name = type(method).__name__
    whole = isinstance(step, tuple) and len(step) == 2 and isinstance(step[1], dict)
    if not whole or not isinstance(step[0], Tensor) or step[0].ndim:
        raise UserError(f"forward of {name} must return Step(loss, terms), the loss a tensor of one number")
    if not step[0].requires_grad:
        raise UserError(f"forward of {name} returned a loss that depends on no weight")
    if wrong := [term for term, value in step[1].items() if not isinstance(value, Tensor) or value.ndim]:
        raise UserError(f"forward of {name}: its term {wrong[0]} must be a tensor of one number")
    return Step(*step)


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
    with _stop_requests() as stop:
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
    """SIGINT and SIGTERM are only collected: impatience must not cost the checkpoint."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.signal(s, lambda signum, frame: caught.append(signum)) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
