"""Pretrain an encoder: build data, method and trainer from a config, and train. Behind the CLI and `hs.pretrain`."""

import contextlib
import copy
import glob
import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import torch
from torch import Tensor, nn

from hypersphere.config import Config, coerce_options, format_value, recipe
from hypersphere.data import Dataset, Images, Loader, Split
from hypersphere.data.dataset import ImageSet, Unreadable
from hypersphere.data.loader import center_view
from hypersphere.data.resolving import dataset_of
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
from hypersphere.distributed.rendezvous import joined
from hypersphere.errors import Collapsed, UserError
from hypersphere.evaluate import extract
from hypersphere.methods import METHODS, Method, name_of
from hypersphere.methods.base import HEADS
from hypersphere.methods.recipes import is_method
from hypersphere.nn import ENCODERS, check_encoder, features_of
from hypersphere.nn.encoders import has_stem
from hypersphere.nn.in_memory import is_in_memory
from hypersphere.nn.in_memory import remember as remember_network
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
from hypersphere.runs.inactive_options import inactive_options, unused_options
from hypersphere.runs.initial_weights import check_init
from hypersphere.runs.machine import Execution, pick_device, pick_precision, provenance, training_execution
from hypersphere.runs.measured_words import LEGEND, MeasuredWords
from hypersphere.runs.memory import check_memory, memory_errors_as_user_errors
from hypersphere.runs.monitors import monitors_of
from hypersphere.runs.option_types import RunOptions
from hypersphere.runs.recipes import located, recipe_for, transformer_options
from hypersphere.runs.run import Run, RunRecord, initial_encoder, last_state, load_config, put_state
from hypersphere.train import (
    Log,
    Monitor,
    Plan,
    RunInterrupted,
    Trainer,
    save_checkpoint,
    train,
)
from hypersphere.train.checkpoint import (
    CHECKPOINT,
    has_checkpoint,
    latest_checkpoint,
    load_checkpoint,
    remove_previous,
)
from hypersphere.train.epoch_lines import EpochLines
from hypersphere.train.trackers import Trackers, check_trackers
from hypersphere.util.console import Progress, notify, notify_once, pluralize, print_error, progress_bar
from hypersphere.util.files import lock_folder, next_free_folder, write_json
from hypersphere.util.launcher import is_main_process, job, launched
from hypersphere.util.records import read_record
from hypersphere.util.references import allow, is_reference
from hypersphere.util.trust import remember

if TYPE_CHECKING:
    from hypersphere.runs.dry_run import DryRun

LEAST_IMAGES, LEAST_BATCH = 100, 16  # fewer than these give a warning
SHORT = 60.0  # seconds of a run whose estimate is not worth a line
WATCHED, TRIED = (4096, 1024), (16, 16)  # (training, held-out) images in memory: on rank 0 for monitors, on other ranks


@overload
def pretrain(
    method: str | None = None,
    data: Any = None,
    *,
    resume: str | os.PathLike[str] | None = None,
    dry_run: Literal[False] = False,
    progress: bool = True,
    **options: Unpack[RunOptions],
) -> Run: ...


@overload
def pretrain(
    method: str | type[Method] | None = None,
    data: Any = None,
    *,
    dry_run: Literal[True],
    progress: bool = True,
    **options: Any,
) -> "DryRun": ...


@overload
def pretrain(
    method: type[Method],
    data: Any = None,
    *,
    resume: str | os.PathLike[str] | None = None,
    dry_run: Literal[False] = False,
    progress: bool = True,
    **options: Any,
) -> Run: ...


def pretrain(
    method: str | type[Method] | None = None,
    data: Any = None,
    *,
    resume: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    progress: bool = True,
    **options: Any,
) -> "Run | DryRun":
    """Train an encoder without labels.

    Args:
        method: Name of a method (`hypersphere methods` lists them), with -uni or -mhe for its regularized variants; or
            a subclass of `hs.methods.Method`. By default the one that did best in recorded runs on similar images.
        data: Images to train on. A dataset's name; a folder of images; tar files; a .npz file; arrays in memory, as
            images, (images, labels) or a dictionary; a torch or Hugging Face dataset; or a function at the top of a
            module that returns one of these. Pixels are bytes, integers of 16 bits, or floats from 0 to 1.
        resume: Folder of a run to continue. Other arguments must be the same as when it began.
        dry_run: Only check the run, measure a few updates, and return what it would do and need (`print` shows it).
            Nothing is trained or written.
        progress: Whether to show a line for each epoch, and a progress bar.
        **options: Fields of `hypersphere.config.Config`, such as `epochs=50`; `hypersphere pretrain METHOD --help`
            explains them. `encoder` may also be a `torch.nn.Module`. The run trains a copy of it, which starts from its
            weights.

    Returns:
        The finished run: `run.encoder`, `run.evaluate()`, `run.path`. With `dry_run` its options and an estimate of its
        time, memory and disk.

    Raises:
        UserError: If an option or the data cannot be used.

    Example:
        >>> import hypersphere as hs
        >>> run = hs.pretrain("byol-mhe", data="digits", epochs=50)  # doctest: +SKIP
        >>> run.encode(images).shape  # doctest: +SKIP
        torch.Size([1000, 128])
    """
    given = None if data is None else dataset_of(data)  # keeps an object in memory alive
    if given is not None:
        options["data"] = given.name
    network = options.get("encoder")
    if isinstance(network, nn.Module):
        options["encoder"] = remember_network(network)
    if isinstance(method, type):
        method = name_of(method)
    if isinstance(options.get("device"), torch.device):
        options["device"] = str(options["device"])
    if resume is None:
        if isinstance(method, str) and not is_method(method, METHODS) and os.path.exists(method):
            raise UserError(f"{method!r} is not a method: pass images as `data` {method}")
        if given is None:
            coerce_options(method, options)  # reports a wrong option first
            if method is not None:
                recipe(method, **options)
            raise UserError(
                "missing `data`: pass a folder of images, or the name of a dataset such as cifar10 or digits"
            )
        check_early(**options)
        config = recipe_for(method, **options)
        if "stem" in options and not has_stem(config.encoder):
            having = " and ".join(filter(has_stem, ENCODERS))
            notify(f"ignored option stem: {having} have it, {config.encoder} does not")
        if dry_run:
            from hypersphere.runs.dry_run import dry_run as tried

            return tried(checked(config))
        return _holding(network, start(config, progress=progress))
    if dry_run:
        raise UserError("`dry_run` applies to new runs, not to `resume`")
    for name in filter(is_reference, (method, *options.values())):
        allow(name)
    folder = Path(resume)
    saved = load_config(folder, advice="name it in the command, too, if you trust it")
    wanted = with_preset(saved, method).replace(**options)
    return _holding(network, go_on(folder, agreeing(saved, wanted, folder), progress=progress))


def _holding(network: Any, run: Run) -> Run:
    """The run, which keeps the encoder that it was given as an object."""
    run.given_encoder = network if isinstance(network, nn.Module) else None
    return run


def check_early(*, device: Any = "auto", encoder: Any = None, init: Any = None, **others: Any) -> None:
    """Check options before the search for images, which may take long."""
    if isinstance(device, str):
        pick_device(device)
    if isinstance(encoder, str):
        check_encoder(encoder)
    if isinstance(init, str | os.PathLike):
        check_init(os.fspath(init))


def with_preset(saved: Config, method: str | None) -> Config:
    """The config of a run, with the method and regularizers of `method` if they differ."""
    if method is None:
        return saved
    named = recipe(method)
    if (named.method, named.title) == (saved.method, saved.title):
        return saved
    return saved.replace(method=named.method, uniformity=named.uniformity, energy=named.energy)


def agreeing(saved: Config, wanted: Config, path: str | Path) -> Config:
    """The config `wanted`, if the run at `path` can continue with it.

    Raises:
        UserError: If an option differs from that of the run.
    """
    wanted = located(wanted)
    if wanted.labels == located(saved).labels:  # older runs keep the path as the user wrote it, as does their hash
        wanted = wanted.replace(labels=saved.labels)
    differing = saved.differences(wanted) + ["precision"] * (saved.precision != wanted.precision)
    for name in sorted(differing, key=lambda name: name != "method"):  # another method explains other differences
        conflict = f"its {name} is {getattr(saved, name)!r}, not {getattr(wanted, name)!r}"
        moved = name == "data" and os.path.isdir(wanted.data) and Dataset.resolve(saved).takes_root(begun=True)
        advice = (
            "if the images have moved there, pass it as `root`" if moved else "`resume` alone continues it as it began"
        )
        if name == "epochs" and _is_finished(Path(path), saved):
            advice = f"it is finished; to start a new run from its weights, pass `init` {path} instead of `resume`"
        raise UserError(f"cannot resume {path}: {conflict}; {advice}")
    Dataset.resolve(wanted).check_root()
    return saved.replace(**vars(wanted))  # whose hash may count options that its method no longer has


def _is_finished(path: Path, config: Config) -> bool:
    """Whether the last checkpoint of a run is that of its last step; False if that cannot be told."""
    try:
        images = read_record(path / "run.json", RunRecord)["training_images"]
        return load_checkpoint(path / CHECKPOINT)["step"] == config.epochs * (images // config.batch)
    except (UserError, KeyError):
        return False


def start(config: Config, *, progress: bool = True) -> Run:
    """Begin a run. Its folder is created after all checks have passed."""
    return _train(checked(config), None, progress)


def checked(config: Config) -> Config:
    """The config of a new run as it is saved, after the checks that need no images."""
    config = located(config)
    check_init(config.init)
    check_trackers(config.track)
    precision = pick_precision(config.precision, pick_device(config.device))
    Dataset.resolve(config).check_options()
    if names := unused_options(config):
        plural = "s" * (len(names) > 1)
        notify(f"ignored option{plural} {', '.join(names)}: no effect on {config.title} with {config.data}")
    return config.replace(precision=precision)


def go_on(path: Path, config: Config, *, progress: bool = True) -> Run:
    """Continue a run from its last checkpoint, or from the beginning if it has none."""
    if launched() == 1 and _is_finished(path, config):  # its images need not be decoded
        dataset = Dataset.resolve(config)
        dataset.split_of_job(config.holdout, path)  # are they still there?
        with lock_folder(path):
            run = last_state(path, config, config.device)
            remove_previous(path / CHECKPOINT, run.step)
        run.dataset = dataset  # keeps an object in memory alive
        if progress:
            print_error(f"{path}: all {run.step} steps are done")
        return run
    return _train(config, path, progress)


def _train(config: Config, path: Path | None, progress: bool) -> Run:
    """Train; `path` is the folder of a run to continue."""
    how = training_execution(config)
    with joined(how.device, config.timeout):
        first = result_of_first(lambda: config)
        agreed(lambda: _check_same(config, first))
        if path is None and job() is not None:
            path = begun = result_of_first(lambda: _find_begun(config))
            if begun is not None:
                config = agreed(lambda: agreeing(load_config(begun), config, begun))
        return _train_jointly(config, path, how, progress and is_main_process())


def _check_same(own: Config, first: Config) -> None:
    names = dict.fromkeys((*first.differences(own), *own.differences(first)))
    if own.precision != first.precision:  # does not count in the hash
        names["precision"] = None
    if not names:
        return
    zero, other = (", ".join(f"{n}={format_value(getattr(c, n, None))}" for n in names) for c in (first, own))
    raise UserError(f"ranks were started with different options: rank 0 has {zero}, rank {rank()} has {other}")


def _train_jointly(config: Config, path: Path | None, how: Execution, progress: bool) -> Run:
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
        trainer = agreed(lambda: new_trainer(config, how, train_images, begin))
        agreed(lambda: trainer.method.check(plan.images))
        if path is None:
            announce(config, split)
        run = Run(path or result_of_first(lambda: _new_folder(config)), config, trainer.method, 0, 0.0)
        run.dataset = dataset  # keeps an object in memory alive
        with contextlib.ExitStack() as owned:
            run_on_first(lambda: owned.enter_context(lock_folder(run.path)))
            if path is None:
                known = {
                    "config": config.to_json(),
                    "hash": config.hash,
                    "classes": len(train_images.classes),
                    "job": job(),
                }
                known |= {"training_images": len(split.train), **dataset.run_record(split)}
                run_on_first(lambda: _write_record(run.path / "run.json", {**known, **provenance(how.device)}))
            else:
                _restore(run, trainer, plan, progress)
            run_on_first(lambda: dataset.save_lists(run.path, split))
            lost |= dataset.unreadable_folders(split)
            run_on_first(lambda: _list_unreadable(run, lost))
            _run_plan(run, trainer, plan, split.train, train_images, held_out, how, progress)
    return run


def _write_record(file: Path, record: dict[str, Any]) -> None:
    write_json(file, record)
    remember(file)


def announce(config: Config, split: Split) -> None:
    """Print the plan of a new run, and warnings about it."""
    train, held_out = split
    for name in (config.method, config.encoder, config.data):
        if name.startswith("__main__:"):
            notify(
                f"{name} is defined in a script, so only that script can load the run: move it to a module to share it"
            )
    if is_in_memory(config.encoder):
        notify("the encoder is an object: to load the run, pass one like it, as hs.load_run(RUN, encoder=network)")
    side = view_pipeline(config).size
    stem = f" ({config.stem} stem)" if has_stem(config.encoder) else ""
    if has_stem(config.encoder) and config.stem == "cifar" and side > 32:
        notify(
            "the cifar stem keeps images at full size: at 64 pixels it takes about 8 times as long as `stem` imagenet"
        )
    plan = f"{config.encoder}{stem}, input {side} × {side}, batch {config.batch}, {pluralize(config.epochs, 'epoch')}"
    apart = "held out" if split.apart else "of them monitored"
    notify(f"{config.title}: {plan}; {len(train):,} training images, {len(held_out):,} {apart}")
    if changed := transformer_options(config):
        values = {name: getattr(config, name) for name in changed}
        chosen = ", ".join(f"{name} {format_value(value)}" for name, value in values.items() if value is not None)
        notify(f"{config.title}: recipe for transformers: {chosen}")
    if len(train) < LEAST_IMAGES or config.batch < LEAST_BATCH:
        few = f"{len(train):,} images in batches of {config.batch} are probably too few"
        notify(f"{few}: use at least {LEAST_IMAGES} images and a batch of at least {LEAST_BATCH}")


def new_trainer(config: Config, how: Execution, images: Images, begin: bool) -> Trainer:
    check_memory(config, images.channels, len(images.classes), how.device)
    torch.manual_seed(config.seed)
    method = build_method(config, images.channels, len(images.classes), begin=begin)
    method = method.to(how.device).to(memory_format=how.layout)
    try_encoder(config, method, images)
    if HEADS in config.energy_layers and regularizes_weights(config):
        notify(f"{config.title}: regularizes the weights of {', '.join(regularized_parts(config, method))}")
    trainer = trainer_of(config, method, how)
    if how.kernels and launched() == 1:
        precompile_update(config, method.train(), how, images)
    return trainer


def _restore(run: Run, trainer: Trainer, plan: Plan, progress: bool) -> None:
    """Load the last checkpoint, if there is one, on rank 0; send it to all ranks, and print its step."""
    state = result_of_first(lambda: latest_checkpoint(run.path))
    message = f"no checkpoint yet: starting at step 0 of {plan.steps}"
    if state is not None:
        agreed(lambda: put_state(run, state))
        agreed(lambda: _put_trainer_state(run, trainer, plan, state))
        finished = trainer.step == plan.steps
        message = f"all {plan.steps} steps are done" if finished else f"resuming at step {run.step} of {plan.steps}"
    if progress:
        print_error(f"{run.path}: {message}")


def _put_trainer_state(run: Run, trainer: Trainer, plan: Plan, state: dict[str, Any]) -> None:
    try:
        trainer.restore(state)
        if not 0 <= trainer.step <= plan.steps:
            raise ValueError(f"its step is {trainer.step}, of {plan.steps}")
    except ValueError as error:
        raise UserError(f"{run.path / CHECKPOINT} is damaged ({error})") from None


def _run_plan(
    run: Run,
    trainer: Trainer,
    plan: Plan,
    images: ImageSet,
    train_images: Images,
    held_out: Images,
    how: Execution,
    progress: bool,
) -> None:
    """Train from the present step of the trainer to the end of the plan."""
    config, workers = run.config, run.dataset.workers
    loader = images.loader(view_pipeline(config), config.seed, trainer.device, workers, progress, config.cache)
    loader.prepare()
    began = time.monotonic() - run.seconds

    def save() -> None:
        run.step, run.seconds = trainer.step, time.monotonic() - began
        state = {"hash": config.hash, "seconds": run.seconds, **trainer.state()}
        save_checkpoint(run.path / CHECKPOINT, state)

    if config.init is not None and trainer.step == 0:
        run_on_first(save)  # the init file may have changed or gone when the run is resumed
    log = agreed(lambda: _log(run, trainer.step) if rank() == 0 else None)
    monitors = _monitors(run, trainer, images, train_images, held_out, how) if rank() == 0 else []
    stop_if_collapsed = config.on_collapse == "stop"
    alarm = CollapseAlarm(config.epochs, stop_if_collapsed, run.metrics, _useless_options(config), config.norm)
    closing = contextlib.nullcontext() if log is None else contextlib.closing(log)
    bars = progress_bar(f"{config.title} on {config.data}", plan.steps, trainer.step, progress)
    trial = partial(trial_update, config, trainer.method, how, train_images)
    enough = memory_errors_as_user_errors(plan.micro_batch // world_size(), how.device, trial)
    with closing, bars as bar, _explain_end(run, plan), _report_unreadable(run, loader), enough:
        train(
            trainer,
            partial(loader.training, dtype=trainer.input_type),
            plan,
            log=log,
            save=save,
            monitors=monitors,
            alarm=alarm,
            progress=bar,
            lines=_epoch_lines(run, trainer, plan, monitors, bar) if progress else None,
            features=partial(_features, run, trainer, images),
        )
        run.step, run.seconds = trainer.step, time.monotonic() - began
        run_on_first(lambda: remove_previous(run.path / CHECKPOINT, plan.steps))
    if progress:
        _tell_if_no_better(run)


def _tell_if_no_better(run: Run) -> None:
    """Say so if the k-NN accuracy at the end is not above that at the start."""
    found = {name: value for line in run.metrics for name, value in line.items() if name in ("knn", "knn_at_start")}
    if len(found) == 2 and found["knn"] <= found["knn_at_start"]:
        start = "that of the random encoder" if run.config.init is None else "that at the start"
        notify(
            f"{run.config.title}: k-NN accuracy {found['knn']:.1f} % is not above {start}, {found['knn_at_start']:.1f} "
            f"%: train for more epochs, or see hypersphere diagnose {run.path}"
        )


def _log(run: Run, step: int) -> Log:
    return Log(run.path, step, Trackers(run.config.track, run.path, run.config.to_json()))


def _monitors(
    run: Run, trainer: Trainer, images: ImageSet, train_images: Images, held_out: Images, how: Execution
) -> list[Monitor]:
    """What to measure; the k-NN accuracy at the start, too, unless it is known already."""
    encoder = copy.deepcopy(trainer.method.encoder) if trainer.step == 0 else None
    known = any("knn_at_start" in line for line in run.metrics)
    return monitors_of(
        run.config,
        trainer.method,
        train_images,
        held_out,
        how,
        whole=len(train_images) == len(images),
        start=None if known else lambda: encoder or initial_encoder(run.config),
    )


def _epoch_lines(run: Run, trainer: Trainer, plan: Plan, monitors: Sequence[Monitor], bar: Progress) -> EpochLines:
    start = "random encoder" if run.config.init is None else "at the start"
    words = MeasuredWords(monitors, features_of(trainer.method.encoder), start, run.metrics)
    if monitors:
        notify_once(LEGEND)
    warm_up = 12 if trainer.capture else 1  # updates before a graph of them is recorded
    return EpochLines(plan, trainer.step, bar, words, partial(_show_estimate, run, trainer, plan, bar), warm_up)


def _show_estimate(run: Run, trainer: Trainer, plan: Plan, bar: Progress, update: float) -> None:
    """Show what the run will need, if it takes more than a moment, and what would fit if that is too much."""
    estimate = estimate_of(run.config, plan, trainer.method, update, trainer.device)
    if estimate.seconds < SHORT:
        return
    bar.line(f"hypersphere: {estimate}")
    if estimate.long and (fitting := proposal(run.config, plan, update)):
        bar.line(f"hypersphere: to fit this CPU, stop with Ctrl-C and start again with {fitting}")


def _useless_options(config: Config) -> set[str]:
    """Options that the alarm must not recommend against collapse."""
    lacking = {"tau"} - vars(config).keys()
    return inactive_options(config) | lacking | ({"norm"} if config.norm == "batch" else set())


@contextlib.contextmanager
def _explain_end(run: Run, plan: Plan) -> Iterator[None]:
    """Add to an error where the run stopped, and how to continue it."""
    try:
        yield
    except RunInterrupted as stop:
        stop.args = (f"stopped after step {stop.step} of {plan.steps}: continue with `resume` {run.path}",)
        raise
    except Collapsed as end:
        end.args = (f"{end}; the run was stopped, its last checkpoint is in {run.path}",)
        raise


@contextlib.contextmanager
def _report_unreadable(run: Run, loader: Loader) -> Iterator[None]:
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
            _list_unreadable(run, unreadable)


def _list_unreadable(run: Run, unreadable: Unreadable) -> None:
    listed = run.path / UNREADABLE
    report_unreadable(unreadable, listed, before=unreadable_in(listed))


def _features(run: Run, trainer: Trainer, images: ImageSet) -> Iterator[Tensor]:
    """The encoder's features of all training images, which takes one more pass over image files."""
    view = center_view(view_pipeline(run.config))

    def encode(pixels: Tensor) -> Tensor:
        return extract(trainer.method.encoder, pixels, view, precision=trainer.precision)

    for part in run.dataset.squares(images):
        yield split_over_ranks(part.to(trainer.device), encode)


def _find_begun(config: Config) -> Path | None:
    """The run that this job began before torchrun or a scheduler restarted it, if there is one.

    It is the run in the folder `out`, or the one in runs/ that has this job's name.
    """
    if config.out is not None:
        begun = config.out if (config.out / "run.json").is_file() else None
    else:
        named = _default_folder(config)
        alike = named.parent.glob(f"{glob.escape(named.name)}*")
        begun = next((run for run in alike if _job_of(run) == job()), None)
    return begun


def _job_of(run: Path) -> str | None:
    with contextlib.suppress(UserError):
        return read_record(run / "run.json", RunRecord).get("job")
    return None


def _default_folder(config: Config) -> Path:
    return Path("runs") / f"{config.title}-{config.data_name}-{config.hash[:8]}"


def _new_folder(config: Config) -> Path:
    """The folder `out`, which must be empty, or the next free one in runs/."""
    folder = checked_out(config)
    return folder if folder.is_dir() and folder == config.out else next_free_folder(folder)


def checked_out(config: Config) -> Path:
    """The folder `out`, after checking that it is empty or does not exist; or that of a run which names none."""
    if config.out is None:
        return _default_folder(config)
    if config.out.is_dir() and all(file.name.startswith((".lock", "run.json.")) for file in config.out.iterdir()):
        return config.out  # empty, or of a run that was killed before it wrote run.json
    if config.out.is_file():
        raise UserError(f"`out` {config.out} is a file: choose a folder")
    if config.out.exists():
        resume = f"continue with `resume` {config.out}, or " if (config.out / "run.json").is_file() else ""
        raise UserError(f"{config.out} is not empty: {resume}choose another `out`")
    return config.out
