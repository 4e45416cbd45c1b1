"""Learning an encoder: what a config makes of data, methods and training. Behind the command line and `hs.pretrain`."""

import contextlib
import glob
import json
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Unpack, overload

import torch
from torch import Tensor

from hypersphere.config import Config, recipe
from hypersphere.data import Dataset, Images, Loader, Split
from hypersphere.data.dataset import ImageSet, Unreadable
from hypersphere.data.kinds import dataset_of
from hypersphere.data.loader import center_view
from hypersphere.data.unreadable import read_unreadable, tell_unreadable
from hypersphere.diagnostics import CollapseAlarm
from hypersphere.distributed.collectives import (
    agreed,
    first_does,
    first_of_machine_first,
    from_first,
    merged,
    rank,
    shared_out,
    size,
)
from hypersphere.distributed.joining import joined
from hypersphere.errors import Collapsed, UserError
from hypersphere.evaluate import extract
from hypersphere.methods import METHODS, Method, name_of
from hypersphere.methods.base import HEADS
from hypersphere.nn import check_encoder
from hypersphere.runs.build import (
    build_method,
    plan_of,
    regularized_parts,
    regularizes_weights,
    rehearse_update,
    trainer_of,
    try_encoder,
    view_recipe,
)
from hypersphere.runs.idle import idle_options, unused_options
from hypersphere.runs.initial import check_init
from hypersphere.runs.machine import Execution, execution_of, pick_device, pick_precision, provenance
from hypersphere.runs.monitors import monitors_of
from hypersphere.runs.option_types import RunOptions
from hypersphere.runs.recipes import located, recipe_for
from hypersphere.runs.run import Run, load_config, put_state
from hypersphere.train import (
    Interrupted,
    Log,
    Plan,
    Trainer,
    load_checkpoint,
    save_checkpoint,
    train,
)
from hypersphere.util.files import next_free_folder, own, write_json
from hypersphere.util.launch import is_first, job, launched
from hypersphere.util.progress import counted, progress_bar, tell

LEAST_IMAGES, LEAST_BATCH = 100, 16  # with which learning is worth a try
WATCHED, TRIED = (4096, 1024), (16, 16)  # images that monitors hold in memory; that ranks without monitors do
UNREADABLE = "unreadable.tsv"  # in a run's folder: images that could not be read


@overload
def pretrain(
    method: str | None = None,
    data: Any = None,
    *,
    resume: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **options: Unpack[RunOptions],
) -> Run: ...


@overload
def pretrain(
    method: type[Method],
    data: Any = None,
    *,
    resume: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **options: Any,
) -> Run: ...


def pretrain(
    method: str | type[Method] | None = None,
    data: Any = None,
    *,
    resume: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **options: Any,
) -> Run:
    """Train an encoder without labels.

    Args:
        method: Name of a method (`hypersphere methods` lists them), with -uni or -mhe for its regularized variants; or
            a subclass of `hs.methods.Method`.
        data: What to learn from. A dataset's name; a folder of images; tar files; a .npz file; arrays in memory, as
            images, (images, labels) or a dictionary; a torch or Hugging Face dataset; or a function at the top of a
            module that returns one of these. Images are uint8 arrays, or floats from 0 to 1.
        resume: Folder of a run to continue. Other arguments must agree with those that it began with.
        progress: Whether to show a progress bar.
        **options: Fields of `hypersphere.config.Config`, such as `epochs=50`; `hypersphere pretrain METHOD --help`
            explains them.

    Returns:
        The finished run: `run.encoder`, `run.evaluate()`, `run.path`.

    Raises:
        UserError: If an option or the data cannot be used.

    Example:
        >>> import hypersphere as hs
        >>> run = hs.pretrain("byol-mhe", data="digits", epochs=50)  # doctest: +SKIP
        >>> run.encode(images).shape  # doctest: +SKIP
        torch.Size([1000, 128])
    """
    given = None if data is None else dataset_of(data)  # an object in memory lives as long as this
    if given is not None:
        options["data"] = given.name
    if isinstance(method, type):
        method = name_of(method)
    if isinstance(options.get("device"), torch.device):
        options["device"] = str(options["device"])
    if resume is None:
        if method is None:
            raise UserError(f"missing method: choose one of {', '.join(METHODS)}")
        check_early(**options)
        return start(recipe_for(method, **options), progress=progress)
    folder = Path(resume)
    saved = load_config(folder)
    wanted = with_preset(saved, method).replace(**options)
    return go_on(folder, agreeing(saved, wanted, folder), progress=progress)


def check_early(*, device: Any = "auto", encoder: Any = None, init: Any = None, **others: Any) -> None:
    """What can be known before images are looked for, which may take long."""
    if isinstance(device, str):
        pick_device(device)
    if isinstance(encoder, str):
        check_encoder(encoder)
    if isinstance(init, str | os.PathLike):
        check_init(os.fspath(init))


def with_preset(saved: Config, method: str | None) -> Config:
    """A run's config, with the method and regularizers of this name, if they are others."""
    if method is None:
        return saved
    named = recipe(method)
    if (named.method, named.title) == (saved.method, saved.title):
        return saved
    return saved.replace(method=named.method, uniformity=named.uniformity, energy=named.energy)


def agreeing(saved: Config, wanted: Config, path: str | Path) -> Config:
    """The config wanted, if it would go on with what was begun."""
    wanted = located(wanted)
    if wanted.labels == located(saved).labels:  # older runs keep it as it was said, and their hash with it
        wanted = wanted.replace(labels=saved.labels)
    differing = saved.differences(wanted) + ["precision"] * (saved.precision != wanted.precision)
    for name in differing:
        conflict = f"its {name} is {getattr(saved, name)!r}, not {getattr(wanted, name)!r}"
        moved = name == "data" and os.path.isdir(wanted.data) and Dataset.resolve(saved).takes_root(begun=True)
        advice = (
            "if the images have moved there, pass it as `root`" if moved else "`resume` alone continues it as it began"
        )
        raise UserError(f"cannot resume {path}: {conflict}; {advice}")
    Dataset.resolve(wanted).check_root()
    return saved.replace(**vars(wanted))  # whose hash may count options that its method no longer has


def start(config: Config, *, progress: bool = True) -> Run:
    """A new run in a new folder, made once everything else is known to be right."""
    config = located(config)
    check_init(config.init)
    precision = pick_precision(config.precision, pick_device(config.device))
    Dataset.resolve(config).check_root(begun=False)
    if names := unused_options(config):
        tell(f"{', '.join(names)}: of no effect on {config.title} with {config.data}")
    return _train(config.replace(precision=precision), None, progress)


def go_on(path: Path, config: Config, *, progress: bool = True) -> Run:
    """From the last checkpoint in the folder, or the beginning, to the end of the plan."""
    return _train(config, path, progress)


def _train(config: Config, path: Path | None, progress: bool) -> Run:
    """`path`: of a run to go on with."""
    how = execution_of(config)
    with joined(how.device, config.timeout):
        first = from_first(lambda: config.hash)
        agreed(lambda: _check_same(config.hash, first))
        if path is None and job() is not None:
            path = from_first(lambda: _begun(config))
        return _train_jointly(config, path, how, progress and is_first())


def _check_same(own: str, first: str) -> None:
    if own != first:
        told = f"the first has a config of hash {first}, another one of {own}"
        raise UserError(f"the processes of this job were told different things ({told}): say the same to each")


def _train_jointly(config: Config, path: Path | None, how: Execution, progress: bool) -> Run:
    if size() > 1 and how.device.type == "cuda":
        tell("updates are launched one by one, not as a CUDA graph, and BatchNorm has no kernel (several processes)")
    dataset, lost = Dataset.resolve(config), Unreadable()
    split = dataset.split_of_job(config.holdout, path).to(how.device)
    watched = WATCHED if rank() == 0 else TRIED  # monitors are rank 0's
    images = first_of_machine_first(lambda: dataset.in_memory(split, watched, progress, lost))
    learnt, held_out = (some.to(how.device) for some in images)
    if path is None and len(held_out) < 2:
        such = " readable" if len(held_out) < len(split.held_out) else ""
        raise UserError(f"{config.data}: at least two{such} images must be held out, got {len(held_out)}")
    with torch.random.fork_rng(devices=[how.device] if how.device.type == "cuda" else []), how.applied():
        plan = agreed(lambda: plan_of(config, len(split.train)))
        begin = from_first(lambda: path is None or not (path / "checkpoint.pt").exists())
        trainer = agreed(lambda: _new_trainer(config, how, learnt, begin))
        agreed(lambda: trainer.method.check(plan.images))
        if path is None:
            _announce(config, split)
        run = Run(path or from_first(lambda: _new_folder(config)), config, trainer.method, 0, 0.0)
        run.dataset = dataset  # an object in memory lives as long as the run
        with contextlib.ExitStack() as owned:
            first_does(lambda: owned.enter_context(own(run.path)))
            if path is None:
                known = {"config": config.to_json(), "hash": config.hash, "classes": len(learnt.classes), "job": job()}
                known |= {"training_images": len(split.train), **dataset.run_record(split)}
                first_does(lambda: write_json(run.path / "run.json", {**known, **provenance(how.device)}))
            else:
                _restore(run, trainer, plan, progress)
            first_does(lambda: dataset.save_lists(run.path, split))
            lost |= dataset.unreadable_folders(split)
            first_does(lambda: _list_unreadable(run, lost))
            _go(run, trainer, plan, split.train, learnt, held_out, how, progress)
    return run


def _announce(config: Config, split: Split) -> None:
    """Print what a run is about to do."""
    train, held_out = split
    for name in (config.method, config.encoder, config.data):
        if name.startswith("__main__:"):
            tell(f"{name} is part of a script: only that script can load the run. Put it into a module to share it")
    side = view_recipe(config).size
    plan = f"{config.encoder}, input {side} × {side}, batch {config.batch}, {counted(config.epochs, 'epoch')}"
    apart = "held out" if split.apart else "of them watched"
    tell(f"{config.title}: {plan}; {len(train):,} training images, {len(held_out):,} {apart}")
    if len(train) < LEAST_IMAGES or config.batch < LEAST_BATCH:
        few = f"{len(train):,} images in batches of {config.batch} are hardly enough to learn from"
        tell(f"{few}: use {LEAST_IMAGES} or more, and a batch of {LEAST_BATCH} or more")


def _new_trainer(config: Config, how: Execution, learnt: Images, begin: bool) -> Trainer:
    torch.manual_seed(config.seed)
    method = build_method(config, learnt.channels, len(learnt.classes), begin=begin)
    method = method.to(how.device).to(memory_format=how.layout)
    try_encoder(config, method, learnt)
    if HEADS in config.energy_layers and regularizes_weights(config):
        tell(f"{config.title}: regularizes the weights of {', '.join(regularized_parts(config, method))}")
    trainer = trainer_of(config, method, how)
    if how.kernels and launched() == 1:
        rehearse_update(config, method.train(), how, learnt)
    return trainer


def _restore(run: Run, trainer: Trainer, plan: Plan, progress: bool) -> None:
    """To the last checkpoint, if there is one, which the first process reads; says which that is."""
    file = run.path / "checkpoint.pt"
    state = from_first(lambda: load_checkpoint(file) if file.exists() else None)
    told = f"there is no checkpoint yet: starting at update 0 of {plan.steps}"
    if state is not None:
        agreed(lambda: put_state(run, state))
        trainer.restore(state)
        finished = trainer.step == plan.steps
        told = f"all {plan.steps} updates are done" if finished else f"going on from update {run.step} of {plan.steps}"
    if progress:
        print(f"{run.path}: {told}", file=sys.stderr, flush=True)


def _go(
    run: Run,
    trainer: Trainer,
    plan: Plan,
    images: ImageSet,
    learnt: Images,
    held_out: Images,
    how: Execution,
    progress: bool,
) -> None:
    """From where the trainer is to the end of the plan."""
    config, workers = run.config, run.dataset.workers
    loader = images.loader(view_recipe(config), config.seed, trainer.device, workers)
    whole = len(learnt) == len(images)
    began = time.monotonic() - run.seconds

    def save() -> None:
        run.step, run.seconds = trainer.step, time.monotonic() - began
        state = {"hash": config.hash, "seconds": run.seconds, **trainer.state()}
        save_checkpoint(run.path / "checkpoint.pt", state)

    if config.init is not None and trainer.step == 0:
        first_does(save)  # what it started from may be another file, or none, when it goes on
    log = agreed(lambda: Log(run.path, trainer.step) if rank() == 0 else None)
    closing = contextlib.nullcontext() if log is None else contextlib.closing(log)
    bars = progress_bar(f"{config.title} on {config.data}", plan.steps, trainer.step, progress)
    with closing, bars as bar, _ends_told(run, plan), _unreadable_told(run, loader):
        train(
            trainer,
            partial(loader.training, dtype=trainer.input_type),
            plan,
            log=log,
            save=save,
            monitors=monitors_of(config, trainer.method, learnt, held_out, how, whole=whole) if rank() == 0 else (),
            alarm=CollapseAlarm(config.epochs, config.on_collapse == "stop", run.metrics, _of_no_help(config)),
            progress=bar,
            features=partial(_features, run, trainer, images),
        )
        run.step, run.seconds = trainer.step, time.monotonic() - began


def _of_no_help(config: Config) -> set[str]:
    lacking = {"tau"} - vars(config).keys()
    return idle_options(config) | lacking | ({"norm"} if config.norm == "batch" else set())


@contextlib.contextmanager
def _ends_told(run: Run, plan: Plan) -> Iterator[None]:
    """Where it was stopped, or why it stopped itself, and what is left of it."""
    try:
        yield
    except Interrupted as stop:
        stop.args = (f"stopped after update {stop.step} of {plan.steps}: go on with `resume` {run.path}",)
        raise
    except Collapsed as end:
        end.args = (f"{end}; stopped, and kept in {run.path}",)
        raise


@contextlib.contextmanager
def _unreadable_told(run: Run, loader: Loader) -> Iterator[None]:
    """The first process lists what could not be read: by all of them, where they come to the end together."""
    unreadable = loader.unreadable
    try:
        yield
        unreadable = merged(unreadable)
    except Interrupted:
        unreadable = merged(unreadable)
        raise
    finally:
        if rank() == 0:
            _list_unreadable(run, unreadable)


def _list_unreadable(run: Run, unreadable: Unreadable) -> None:
    listed = run.path / UNREADABLE
    tell_unreadable(unreadable, listed, before=read_unreadable(listed))


def _features(run: Run, trainer: Trainer, images: ImageSet) -> Iterator[Tensor]:
    """The encoder's features of all training images: one more pass over the files, if they are read."""
    view = center_view(view_recipe(run.config))

    def encode(pixels: Tensor) -> Tensor:
        return extract(trainer.method.encoder, pixels, view, precision=trainer.precision)

    for part in run.dataset.squares(images):
        yield shared_out(part.to(trainer.device), encode)


def _begun(config: Config) -> Path | None:
    """What this job, or the one that torchrun or a scheduler starts in its place by the same command, has begun: the
    run in the folder asked for, or the one in runs/ that has the job's name."""
    if config.out is not None:
        begun = config.out if (config.out / "run.json").is_file() else None
    else:
        named = _default_folder(config)
        alike = named.parent.glob(f"{glob.escape(named.name)}*")
        begun = next((run for run in alike if _job_of(run) == job()), None)
    if begun is not None:
        agreeing(load_config(begun), config, begun)
    return begun


def _job_of(run: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError):
        return json.loads((run / "run.json").read_text()).get("job")
    return None


def _default_folder(config: Config) -> Path:
    return Path("runs") / f"{config.title}-{config.data_name}-{config.hash[:8]}"


def _new_folder(config: Config) -> Path:
    """The folder asked for, which must be empty; or the next free one in runs/."""
    if config.out is None:
        return next_free_folder(_default_folder(config))
    if config.out.is_dir() and all(file.name.startswith((".lock", "run.json.")) for file in config.out.iterdir()):
        return config.out  # empty, or of a run that was killed before it could say what it is
    if config.out.is_file():
        raise UserError(f"`out` {config.out} is a file: choose a folder")
    if config.out.exists():
        raise UserError(f"{config.out} is not empty: go on with `resume` {config.out}, or choose another `out`")
    return next_free_folder(config.out)
