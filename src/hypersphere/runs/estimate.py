"""How long a run will take on this machine, with how much memory and disk; and what would fit if that is too long."""

import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from hypersphere.config import Config
from hypersphere.data import Images
from hypersphere.errors import UserError
from hypersphere.methods import Method
from hypersphere.nn import build_encoder
from hypersphere.runs.build import trial_update, view_pipeline
from hypersphere.runs.machine import Execution
from hypersphere.runs.memory import SLOTS, size_of
from hypersphere.train import Plan
from hypersphere.util.console import duration, pluralize
from hypersphere.util.free_memory import in_bytes
from hypersphere.util.references import is_reference

LONG = 3 * 3600.0  # seconds on a CPU, above which something shorter is proposed
FITTING = 2 * 3600.0  # seconds that a proposal may take
USEFUL_EPOCHS = 50  # a proposal reduces images before it goes below
SIDES = (160, 128, 96, 64)  # of proposals, in pixels
MEASURED = 1.0  # seconds of a trial update that are enough to extrapolate from


@dataclass(frozen=True)
class RunEstimate:
    """What a run will need.

    Attributes:
        seconds: Time of the whole run.
        update: Seconds of an update.
        images_per_second: Training images per second.
        epochs: Length of the run.
        memory: Bytes on its device at most; None if unknown.
        disk: Bytes of its folder, with the checkpoint before the last one, and of decoded images on disk.
        device: "cpu", or the kind of another device.
    """

    seconds: float
    update: float
    images_per_second: float
    epochs: int
    memory: float | None
    disk: float
    device: str

    def __str__(self) -> str:
        where = "GPU memory" if self.device == "cuda" else "memory"
        needs = f", {in_bytes(self.memory)} of {where}" if self.memory else ""
        speed = (
            f"{_seconds(self.update)} an update, {self.images_per_second:,.{self.images_per_second < 10:d}f} images/s"
        )
        return (
            f"about {duration(self.seconds)} for {pluralize(self.epochs, 'epoch')} on this {_machine(self.device)} "
            f"({speed}){needs}, {in_bytes(self.disk)} of disk"
        )

    @property
    def long(self) -> bool:
        """Whether the run would keep a CPU busy for hours."""
        return self.device == "cpu" and self.seconds > LONG


def _machine(device: str) -> str:
    return {"cpu": "CPU", "cuda": "GPU"}.get(device, device)


def _seconds(value: float) -> str:
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


def estimate_of(config: Config, plan: Plan, method: Method, update: float, device: torch.device) -> RunEstimate:
    """The estimate of a run of which some updates were made, `update` seconds each, in this process."""
    return RunEstimate(
        seconds=update * plan.steps,
        update=update,
        images_per_second=plan.batch / update,
        epochs=plan.epochs,
        memory=peak_memory(device),
        disk=2 * checkpoint_size(config, method),
        device=device.type,
    )


def checkpoint_size(config: Config, method: nn.Module) -> int:
    """Bytes of a checkpoint: the networks, and the state of the optimizer."""
    return size_of(method, 1 + SLOTS[config.optimizer])


def peak_memory(device: torch.device) -> float | None:
    """Most bytes that this process has used on a device so far."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    if device.type != "cpu":
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(most) if sys.platform == "darwin" else 1024.0 * most


@dataclass(frozen=True)
class Trial:
    """What trial updates took.

    Attributes:
        update: Seconds of an update of the run.
        images: Images of the largest trial.
        taken: Peak memory after it, in bytes; None if unknown.
        each: Bytes that an image adds.
    """

    update: float
    images: int
    taken: float | None
    each: float = 0.0

    def memory(self, images: int) -> float | None:
        """Peak memory with so many images at once."""
        return None if self.taken is None else self.taken + self.each * max(0, images - self.images)


def try_updates(config: Config, plan: Plan, method: Method, how: Execution, images: Images) -> Trial:
    """Measure updates on a copy of the networks, and extrapolate to those of the run.

    On a CPU, where time grows with the number of images, a few images tell. On a GPU whole micro-batches are measured.
    """
    measured: dict[int, tuple[float, float | None]] = {}
    for count in _counts(plan.micro_batch, how.device):
        measured[count] = _measure(trial_update(config, method, how, images, count), how.device)
        if len(measured) > 1 and measured[count][0] >= MEASURED:
            break
    (few, (first, before)), (many, (last, after)) = min(measured.items()), max(measured.items())
    each = (last - first) / (many - few) if many > few else last / many
    update = last + max(each, 0.5 * last / many) * (plan.batch - many)  # whose optimizer steps once
    if before is None or after is None or many == few:
        return Trial(update, many, after)
    return Trial(update, many, after, (after - before) / (many - few))


def _counts(most: int, device: torch.device) -> Iterator[int]:
    count = most if device.type == "cuda" else min(8, most)
    while count < most:
        yield count
        count *= 2
    yield most


def _measure(update: Callable[[], None], device: torch.device) -> tuple[float, float | None]:
    """Seconds of the faster of two updates, after one that warms up; and peak memory."""
    seconds = []
    for _ in range(3):
        began = time.monotonic()
        update()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.monotonic() - began)
        if seconds[0] > 2 * MEASURED:
            break
    return min(seconds[1:] or seconds), peak_memory(device)


def proposal(config: Config, plan: Plan, update: float) -> str | None:
    """Options with which a run fits into `FITTING` seconds, in words; None if that cannot be told.

    The time is taken to grow with the operations of the encoder for an image.
    """
    operations = _operations(config)
    if not operations:
        return None
    epoch = update * plan.steps_per_epoch
    for options in _smaller(config):
        smaller = config.replace(**options)
        share = (_operations(smaller) or operations) / operations
        epochs = min(config.epochs, int(FITTING / (share * epoch)))
        if epochs >= min(config.epochs, USEFUL_EPOCHS):
            break
    epochs = max(1, epochs)
    options |= {"epochs": epochs} if epochs < config.epochs else {}
    words = [f"`{name}` {value}" for name, value in options.items()]
    return f"{', '.join(words)}: about {duration(share * epoch * epochs)}"


def _smaller(config: Config) -> Iterator[dict[str, Any]]:
    """The options of a run with fewer operations, step by step."""
    yield {}
    side = view_pipeline(config).size
    free = config.size is not None  # named datasets have their own size
    is_small = is_reference(config.encoder) or config.encoder in ("torchvision/resnet18", "hypersphere/digits")
    small: dict[str, Any] = {} if is_small else {"encoder": "torchvision/resnet18"}
    stem = {"stem": "imagenet"} if config.stem == "cifar" and (small or "resnet" in config.encoder) else {}
    if stem:
        yield stem
    if small:
        yield {**small, **stem}
    for smaller in (one for one in SIDES if free and one < side and not config.encoder.startswith("timm/vit")):
        yield {**small, "size": smaller, "stem": "imagenet"}


def _operations(config: Config) -> float | None:
    """Floating-point operations of the encoder for two images, without computing them; None if that is unknown."""
    pipeline = view_pipeline(config)
    shape = (2, len(pipeline.mean), pipeline.size, pipeline.size)
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"), warnings.catch_warnings(action="ignore"):
            if is_reference(config.encoder):
                return None
            made_for = {"stem": config.stem, "norm": config.norm, "size": pipeline.size}
            encoder = build_encoder(config.encoder, channels=shape[1], **made_for)  # type: ignore[arg-type]
            with FlopCounterMode(display=False) as counter, torch.no_grad():
                encoder.eval()(torch.zeros(shape))
    except (UserError, RuntimeError, NotImplementedError, ValueError, TypeError, AssertionError):
        return None
    return float(counter.get_total_flops())
