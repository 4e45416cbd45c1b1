"""Train a run from its config: on all ranks, from its first step or its last checkpoint to its end."""

import contextlib
import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hypersphere.config import Config, format_value
from hypersphere.data import Dataset, Images, Loader, Split
from hypersphere.data.dataset import ImageSet, Unreadable
from hypersphere.data.loader import center_view
from hypersphere.data.unreadable import UNREADABLE, report_unreadable, unreadable_in
from hypersphere.diagnostics import CollapseAlarm
from hypersphere.distributed.collectives import (
    agreed,
    merged,
    rank,
    result_of_first,
    run_first_on_each_machine,
    run_on_first,
    split_over_ranks,
    world_size,
)
from hypersphere.errors import Collapsed, UserError
from hypersphere.evaluate import extract
from hypersphere.methods.base import HEADS
from hypersphere.methods.recipes import PHOTOGRAPH
from hypersphere.nn import features_of
from hypersphere.nn.encoders import has_stem
from hypersphere.nn.in_memory import is_in_memory
from hypersphere.nn.libraries import model_name
from hypersphere.runs.build import (
    build_method,
    plan_of,
    precompile_update,
    regularized_parts,
    regularizes_weights,
    trainer_of,
    trial_update,
    try_encoder,
    view_pipeline,
)
from hypersphere.runs.estimate import estimate_of, proposal
from hypersphere.runs.machine import Execution, provenance
from hypersphere.runs.measured_words import LEGEND, MeasuredWords
from hypersphere.runs.memory import check_memory, memory_errors_as_user_errors
from hypersphere.runs.monitors import monitors_of
from hypersphere.runs.recipes import inactive_options, transformer_options
from hypersphere.runs.run import Run, initial_encoder, put_state
from hypersphere.runs.run_folders import new_folder
from hypersphere.train import Log, Monitor, Plan, RunInterrupted, Trainer, save_checkpoint, train
from hypersphere.train.checkpoint import has_checkpoint, latest_checkpoint, remove_previous
from hypersphere.train.epoch_lines import EpochLines
from hypersphere.train.trackers import Trackers
from hypersphere.util.console import Progress, as_message, notify, notify_once, pluralize, print_error, progress_bar
from hypersphere.util.files import lock_folder, write_json
from hypersphere.util.launcher import job, launched
from hypersphere.util.run_files import CHECKPOINT, RUN_RECORD
from hypersphere.util.trust import remember_own_file

LEAST_IMAGES, LEAST_BATCH = 100, 16  # fewer than these give a warning
FEW_PHOTOGRAPHS = 2000  # fewer than these, without pretrained weights give one
HIGHEST_RATE = 0.025  # a higher learning rate of these optimizers gives one
USUAL_RATES = {"muon": "0.001 to 0.01", "adamw": "0.0001 to 0.002"}
SHORT = 60.0  # seconds of a run whose estimate is not worth a line
WATCHED, TRIED = (4096, 1024), (16, 16)  # (training, held-out) images in memory: on rank 0 for monitors, on other ranks


def train_run(config: Config, path: Path | None, how: Execution, progress: bool) -> Run:
    """Train a run on all ranks, which have joined. `path` is the folder of a run to continue."""
    if world_size() > 1 and how.device.type == "cuda":
        notify("several processes: training without CUDA graphs and without the BatchNorm kernel")
    dataset, lost = Dataset.resolve(config), Unreadable()
    split = dataset.split_of_job(config.holdout, path).to(how.device)
    watched = WATCHED if rank() == 0 else TRIED  # only rank 0 has monitors
    images = run_first_on_each_machine(lambda: dataset.in_memory(split, watched, progress, lost))
    train_images, held_out = (part.to(how.device) for part in images)
    if path is None and len(held_out) < 2:
        readable = " readable" if len(held_out) < len(split.held_out) else ""
        raise UserError(f"{config.data}: at least two{readable} images must be held out, got {len(held_out)}")
    with torch.random.fork_rng(devices=[how.device] if how.device.type == "cuda" else []), how.applied():
        plan = agreed(lambda: plan_of(config, len(split.train)))
        begin = result_of_first(lambda: path is None or not has_checkpoint(path))
        trainer = agreed(lambda: new_trainer(config, how, train_images, begin, plan.steps))
        agreed(lambda: trainer.method.check(plan.images))
        if path is None:
            announce(config, split)
        run = Run(path or result_of_first(lambda: new_folder(config)), config, trainer.method, 0, 0.0)
        run.dataset = dataset  # keeps an object in memory alive
        training = _Training(run, trainer, plan, split.train, train_images, held_out, how, progress)
        with contextlib.ExitStack() as owned:
            run_on_first(lambda: owned.enter_context(lock_folder(run.path)))
            if path is None:
                run_on_first(lambda: _write_record(run, split, len(train_images.classes), how.device))
            else:
                training.restore()
            run_on_first(lambda: dataset.save_lists(run.path, split))
            lost |= dataset.unreadable_folders(split)
            run_on_first(lambda: training.list_unreadable(lost))
            training.train()
    return run


def _write_record(run: Run, split: Split, classes: int, device: torch.device) -> None:
    record = {"config": run.config.to_json(), "hash": run.config.hash, "classes": classes, "job": job()}
    record |= {"training_images": len(split.train), **run.dataset.run_record(split), **provenance(device)}
    write_json(run.path / RUN_RECORD, record)
    remember_own_file(run.path / RUN_RECORD)


def announce(config: Config, split: Split) -> None:
    """Print the plan of a new run, and warnings about it."""
    train, held_out = split
    for name in (config.method, config.encoder, config.data):
        if name.startswith("__main__:"):
            notify(
                f"{name} is defined in a script, so only that script can load the run: move it to a module to share it"
            )
    side = view_pipeline(config).size
    stem = f" ({config.stem} stem)" if has_stem(config.encoder) else ""
    plan = f"{config.encoder}{stem}, input {side} × {side}, batch {config.batch}, {pluralize(config.epochs, 'epoch')}"
    plan += f", {config.optimizer} with lr {config.lr:g}"
    apart = "held out" if split.apart else "of them monitored"
    notify(f"{config.title}: {plan}; {len(train):,} training images, {len(held_out):,} {apart}")
    if changed := transformer_options(config):
        values = {name: getattr(config, name) for name in changed}
        chosen = ", ".join(f"{name} {format_value(value)}" for name, value in values.items() if value is not None)
        notify(f"{config.title}: recipe for transformers: {chosen}")
    large = not isinstance(train, Images) or min(train.pixels.shape[-2:]) > PHOTOGRAPH
    for warning in _warnings(config, len(train), side, large):
        notify(warning)


def _warnings(config: Config, images: int, side: int, large: bool) -> Iterator[str]:
    """What a user will probably regret."""
    if is_in_memory(config.encoder):
        yield "the encoder is an object: to load the run, pass one like it, as hs.load_run(RUN, encoder=network)"
    if has_stem(config.encoder) and config.stem == "cifar" and side > 32:
        yield "the cifar stem keeps images at full size: at 64 pixels it takes about 8 times as long as `stem` imagenet"
    if config.optimizer in USUAL_RATES and config.lr > HIGHEST_RATE:
        yield f"`lr` {config.lr:g} is far above what {config.optimizer} needs: {USUAL_RATES[config.optimizer]} is usual"
    if images < LEAST_IMAGES or config.batch < LEAST_BATCH:
        few = f"{images:,} images in batches of {config.batch} are probably too few"
        yield f"{few}: use at least {LEAST_IMAGES} images and a batch of at least {LEAST_BATCH}"
    elif large and images < FEW_PHOTOGRAPHS and config.init is None and model_name(config.encoder):
        yield f"{images:,} images are few to learn from: consider `init` pretrained, or weights of your own"


def new_trainer(config: Config, how: Execution, images: Images, begin: bool, updates: int) -> Trainer:
    check_memory(config, images.channels, len(images.classes), how.device)
    torch.manual_seed(config.seed)
    method = build_method(config, images.channels, len(images.classes), begin=begin)
    method = method.to(how.device).to(memory_format=how.layout)
    try_encoder(config, method, images)
    if HEADS in config.energy_layers and regularizes_weights(config):
        notify(f"{config.title}: regularizes the weights of {', '.join(regularized_parts(config, method))}")
    trainer = trainer_of(config, method, how, updates)
    if trainer.compiled and config.compile == "auto":
        notify("torch.compile takes about a minute; later updates are faster (`compile` off skips it)")
    if how.kernels and launched() == 1:
        precompile_update(config, method.train(), how, images)
    return trainer


@dataclass
class _Training:
    """A run while it trains, as one rank sees it."""

    run: Run
    trainer: Trainer
    plan: Plan
    images: ImageSet  # all training images
    train_images: Images  # those of them in memory
    held_out: Images
    how: Execution
    progress: bool

    def restore(self) -> None:
        """Load the last checkpoint, if there is one, on rank 0; send it to all ranks, and print its step."""
        run, steps = self.run, self.plan.steps
        state = result_of_first(lambda: latest_checkpoint(run.path))
        message = f"no checkpoint yet: starting at step 0 of {steps}"
        if state is not None:
            agreed(lambda: put_state(run, state))
            agreed(lambda: self._restore_trainer(state))
            finished = self.trainer.step == steps
            message = f"all {steps} steps are done" if finished else f"resuming at step {run.step} of {steps}"
        if self.progress:
            print_error(f"{run.path}: {message}")

    def _restore_trainer(self, state: dict[str, Any]) -> None:
        try:
            self.trainer.restore(state)
            if not 0 <= self.trainer.step <= self.plan.steps:
                raise ValueError(f"its step is {self.trainer.step}, of {self.plan.steps}")
        except ValueError as error:
            raise UserError(f"{self.run.path / CHECKPOINT} is damaged ({error})") from None

    def train(self) -> None:
        """Train from the present step of the trainer to the end of the plan."""
        run, trainer, plan, config = self.run, self.trainer, self.plan, self.run.config
        loader = self.images.loader(
            view_pipeline(config), config.seed, trainer.device, run.dataset.workers, self.progress, config.cache
        )
        loader.prepare()
        began = time.monotonic() - run.seconds

        def save() -> None:
            run.step, run.seconds = trainer.step, time.monotonic() - began
            state = {"hash": config.hash, "seconds": run.seconds, **trainer.state()}
            save_checkpoint(run.path / CHECKPOINT, state)

        if config.init is not None and trainer.step == 0:
            run_on_first(save)  # the init file may have changed or gone when the run is resumed
        log = agreed(lambda: self._log() if rank() == 0 else None)
        monitors = self._monitors() if rank() == 0 else []
        stop_if_collapsed = config.on_collapse == "stop"
        alarm = CollapseAlarm(config.epochs, stop_if_collapsed, run.metrics, _useless_options(config), config.norm)
        closing = contextlib.nullcontext() if log is None else contextlib.closing(log)
        bars = progress_bar(f"{config.title} on {config.data}", plan.steps, trainer.step, self.progress)
        trial = partial(trial_update, config, trainer.method, self.how, self.train_images)
        enough = memory_errors_as_user_errors(plan.micro_batch // world_size(), self.how.device, trial)
        with closing, bars as bar, self._explained_end(), self._reported_unreadable(loader), enough:
            train(
                trainer,
                partial(loader.training, dtype=trainer.input_type),
                plan,
                log=log,
                save=save,
                monitors=monitors,
                alarm=alarm,
                progress=bar,
                lines=self._epoch_lines(monitors, bar) if self.progress else None,
                features=self._features,
            )
            run.step, run.seconds = trainer.step, time.monotonic() - began
            run_on_first(lambda: remove_previous(run.path / CHECKPOINT, plan.steps))
        if self.progress:
            _tell_if_no_better(run)

    def _log(self) -> Log:
        run = self.run
        return Log(run.path, self.trainer.step, Trackers(run.config.track, run.path, run.config.to_json()))

    def _monitors(self) -> list[Monitor]:
        """What to measure; the k-NN accuracy at the start, too, unless it is known already."""
        config, method = self.run.config, self.trainer.method
        encoder = copy.deepcopy(method.encoder) if self.trainer.step == 0 else None
        known = any("knn_at_start" in line for line in self.run.metrics)
        return monitors_of(
            config,
            method,
            self.train_images,
            self.held_out,
            self.how,
            whole=len(self.train_images) == len(self.images),
            start=None if known else lambda: encoder or initial_encoder(config),
        )

    def _epoch_lines(self, monitors: Sequence[Monitor], bar: Progress) -> EpochLines:
        run, trainer = self.run, self.trainer
        start = "random encoder" if run.config.init is None else "at the start"
        words = MeasuredWords(monitors, features_of(trainer.method.encoder), start, run.metrics)
        if monitors:
            notify_once(LEGEND)
        warm_up = 12 if trainer.capture else 1  # updates before a graph of them is recorded
        return EpochLines(self.plan, trainer.step, bar, words, partial(self._show_estimate, bar), warm_up)

    def _show_estimate(self, bar: Progress, update: float) -> None:
        """Show what the run will need, if it takes more than a moment, and what would fit if that is too much."""
        config, trainer = self.run.config, self.trainer
        estimate = estimate_of(config, self.plan, trainer.method, update, trainer.device)
        if estimate.seconds < SHORT:
            return
        bar.line(as_message(str(estimate)))
        if estimate.long and (fitting := proposal(config, self.plan, update)):
            bar.line(as_message(f"to fit this CPU, stop with Ctrl-C and start again with {fitting}"))

    @contextlib.contextmanager
    def _explained_end(self) -> Iterator[None]:
        """Add to an error where the run stopped, and how to continue it."""
        path = self.run.path
        try:
            yield
        except RunInterrupted as stop:
            stop.args = (f"stopped after step {stop.step} of {self.plan.steps}: continue with `resume` {path}",)
            raise
        except Collapsed as end:
            end.args = (f"{end}; the run was stopped, its last checkpoint is in {path}",)
            raise

    @contextlib.contextmanager
    def _reported_unreadable(self, loader: Loader) -> Iterator[None]:
        """List unreadable images at the end: those of all ranks, or those of rank 0 after an error."""
        unreadable = loader.unreadable
        try:
            yield
            unreadable = merged(unreadable)
        except RunInterrupted:
            unreadable = merged(unreadable)
            raise
        finally:
            if rank() == 0:
                self.list_unreadable(unreadable)

    def list_unreadable(self, unreadable: Unreadable) -> None:
        listed = self.run.path / UNREADABLE
        report_unreadable(unreadable, listed, before=unreadable_in(listed))

    def _features(self) -> Iterator[Tensor]:
        """The encoder's features of all training images, which takes one more pass over image files."""
        trainer, view = self.trainer, center_view(view_pipeline(self.run.config))

        def encode(pixels: Tensor) -> Tensor:
            return extract(trainer.method.encoder, pixels, view, precision=trainer.precision)

        for part in self.run.dataset.squares(self.images):
            yield split_over_ranks(part.to(trainer.device), encode)


def _tell_if_no_better(run: Run) -> None:
    """Say so if the k-NN accuracy at the end is not above that at the start."""
    found = {name: value for line in run.metrics for name, value in line.items() if name in ("knn", "knn_at_start")}
    if len(found) == 2 and found["knn"] <= found["knn_at_start"]:
        start = "that of the random encoder" if run.config.init is None else "that at the start"
        notify(
            f"{run.config.title}: k-NN accuracy {found['knn']:.1f} % is not above {start}, {found['knn_at_start']:.1f} "
            f"%: train for more epochs, or see hypersphere diagnose {run.path}"
        )


def _useless_options(config: Config) -> set[str]:
    """Options that the alarm must not recommend against collapse."""
    lacking = {"tau"} - vars(config).keys()
    return inactive_options(config) | lacking | ({"norm"} if config.norm == "batch" else set())
