"""Pretrain an encoder: from options to the config of a run, new or continued. Behind the CLI and `hs.pretrain`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import torch
from torch import nn

from hypersphere.config import Config, coerce_options, format_value, recipe
from hypersphere.data import Dataset
from hypersphere.data.resolving import dataset_of
from hypersphere.distributed.collectives import agreed, rank, result_of_first
from hypersphere.distributed.rendezvous import joined
from hypersphere.errors import UserError
from hypersphere.methods import METHODS, Method, name_of
from hypersphere.methods.recipes import is_method
from hypersphere.nn import ENCODERS, check_encoder
from hypersphere.nn.encoders import has_stem
from hypersphere.nn.in_memory import remember_network
from hypersphere.runs.initial_weights import check_init
from hypersphere.runs.machine import pick_device, pick_precision, training_execution
from hypersphere.runs.option_types import RunOptions
from hypersphere.runs.recipes import recipe_for, unused_options, with_absolute_paths
from hypersphere.runs.run import Run, RunRecord, last_state, load_config
from hypersphere.runs.run_folders import find_begun
from hypersphere.runs.training import train_run
from hypersphere.train.checkpoint import load_checkpoint, remove_previous
from hypersphere.train.trackers import check_trackers
from hypersphere.util.console import notify, print_error
from hypersphere.util.files import lock_folder
from hypersphere.util.launcher import is_main_process, job, launched
from hypersphere.util.records import read_record
from hypersphere.util.references import allow, is_reference
from hypersphere.util.run_files import CHECKPOINT, RUN_RECORD

if TYPE_CHECKING:
    from hypersphere.runs.dry_run import DryRun


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
    wanted = with_absolute_paths(wanted)
    if wanted.labels == with_absolute_paths(saved).labels:  # older runs and their hash keep the path as it was written
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
        images = read_record(path / RUN_RECORD, RunRecord)["training_images"]
        return load_checkpoint(path / CHECKPOINT)["step"] == config.epochs * (images // config.batch)
    except (UserError, KeyError):
        return False


def start(config: Config, *, progress: bool = True) -> Run:
    """Begin a run. Its folder is created after all checks have passed."""
    return _train(checked(config), None, progress)


def checked(config: Config) -> Config:
    """The config of a new run as it is saved, after the checks that need no images."""
    config = with_absolute_paths(config)
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
            path = begun = result_of_first(lambda: find_begun(config))
            if begun is not None:
                config = agreed(lambda: agreeing(load_config(begun), config, begun))
        return train_run(config, path, how, progress and is_main_process())


def _check_same(own: Config, first: Config) -> None:
    names = dict.fromkeys((*first.differences(own), *own.differences(first)))
    if own.precision != first.precision:  # does not count in the hash
        names["precision"] = None
    if not names:
        return
    zero, other = (", ".join(f"{n}={format_value(getattr(c, n, None))}" for n in names) for c in (first, own))
    raise UserError(f"ranks were started with different options: rank 0 has {zero}, rank {rank()} has {other}")
