"""`pretrain --dry-run`: what a run would do and need on this machine, without creating anything."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from hypersphere.config import Config, format_value
from hypersphere.data import Dataset, Split
from hypersphere.data.loader import decode_place
from hypersphere.errors import UserError
from hypersphere.runs.build import plan_of
from hypersphere.runs.estimate import RunEstimate, Trial, estimate_of, proposal, try_updates
from hypersphere.runs.machine import training_execution
from hypersphere.runs.run_folders import checked_out
from hypersphere.runs.training import announce, new_trainer
from hypersphere.util.free_memory import free_memory
from hypersphere.util.launcher import launched

TRIED = (64, 16)  # training and held-out images that are decoded


@dataclass(frozen=True, repr=False)
class DryRun:
    """What a run would do and need. `print` shows it.

    Attributes:
        config: All options of the run.
        folder: The folder that the run would create.
        training_images: Number of training images.
        held_out: Number of held-out images.
        steps: Updates of the whole run.
        estimate: Time, memory and disk, measured by a few updates.
        micro_batch: Images that fit into memory at once, if those of the run do not; None otherwise.
        proposal: Options that would fit this machine if the run takes many hours on a CPU; None otherwise.
    """

    config: Config
    folder: str
    training_images: int
    held_out: int
    steps: int
    estimate: RunEstimate
    micro_batch: int | None
    proposal: str | None

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        options = {name: value for name, value in vars(self.config).items() if name not in self.config.inactive}
        width = max(map(len, options))
        yield f"options of {self.config.title} (hash {self.config.hash}):"
        yield from (f"  {name:{width}}  {_in_words(value)}" for name, value in options.items())
        yield f"plan: {self.steps:,} updates of {self.config.batch} images, into {self.folder}"
        yield f"estimate: {self.estimate}"
        if self.micro_batch:
            yield f"memory: less than that is free; micro_batch {self.micro_batch} would fit"
        if self.proposal:
            yield f"to fit this CPU: {self.proposal}"
        yield "dry run: nothing was trained or written"


def _in_words(value: object) -> str:
    return "–" if value is None or value == () else format_value(value)


def dry_run(config: Config) -> DryRun:
    """Check a run as its start does, and measure a few updates of it.

    Raises:
        UserError: If the run could not start.
    """
    if launched() > 1:
        raise UserError("`dry_run` measures one process: start it without a launcher")
    folder = checked_out(config)
    how, dataset = training_execution(config), Dataset.resolve(config)
    split = dataset.split(config.holdout)
    train_images, held_out = (part.to(how.device) for part in dataset.in_memory(split, TRIED))
    decoding = _seconds_of_decoding(dataset, split)
    if len(held_out) < 2:
        raise UserError(f"{config.data}: at least two images must be held out, got {len(held_out)}")
    cuda = [how.device] if how.device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda), how.applied():
        plan = plan_of(config, len(split.train))
        trainer = new_trainer(config, how, train_images, begin=True, updates=plan.steps)
        trainer.method.check(plan.images)
        announce(config, split)
        trial = try_updates(config, plan, trainer.method, how, train_images)
        estimate = estimate_of(config, plan, trainer.method, trial.update, how.device)
    place, size = decode_place(split.train, dataset.pipeline(config.size), config.cache, how.device)
    passes = {"nowhere": 0, "off": plan.epochs}.get(place, 1)
    memory = trial.memory(plan.micro_batch)
    estimate = replace(
        estimate,
        seconds=_seconds_in_all(estimate.seconds, decoding * passes, place == "off" and dataset.workers > 0),
        memory=None if memory is None else memory + size * (place == ("gpu" if cuda else "memory")),
        disk=estimate.disk + size * (place == "disk"),
    )
    fitting = proposal(config, plan, trial.update) if estimate.long else None
    micro_batch = _fitting(plan.micro_batch, trial, free_memory(how.device))
    return DryRun(
        config, str(folder), len(split.train), len(split.held_out), plan.steps, estimate, micro_batch, fitting
    )


def _seconds_of_decoding(dataset: Dataset, split: Split) -> float:
    """Seconds in which the workers decode all training images; measured on some, without the start of the workers."""
    began = time.monotonic()
    some = split.train.decoded(dataset.stored_side(dataset.options.size), 0, TRIED[0], unreadable={})
    each = (time.monotonic() - began) / max(1, min(TRIED[0], len(some)))
    return each * len(split.train) / max(1, dataset.workers)


def _seconds_in_all(training: float, decoding: float, at_once: bool) -> float:
    return max(training, decoding) if at_once else training + decoding


def _fitting(wanted: int, trial: Trial, free: int | None) -> int | None:
    """The largest half, quarter, … of a micro-batch that fits into free memory; None if all of it does."""
    if free is None or trial.each * (wanted - trial.images) <= free:
        return None
    halves = (wanted >> n for n in range(1, wanted.bit_length()) if wanted % 2**n == 0)
    return next((half for half in halves if trial.each * (half - trial.images) <= free), 2)
