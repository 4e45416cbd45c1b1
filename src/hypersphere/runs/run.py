"""A run: its folder, config and encoder, and the evaluation of the encoder with probes."""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from hypersphere.config import Config, code_named_in
from hypersphere.data import FILE_SOURCES, SOURCES, Dataset, Holdout, Images, Loader
from hypersphere.data.file_datasets import FILES, saved_files
from hypersphere.data.loader import center_view
from hypersphere.data.resolving import dataset_of
from hypersphere.data.unreadable import report_unreadable
from hypersphere.errors import UserError
from hypersphere.evaluate import Evaluation, evaluate_encoder, extract, transfer_views
from hypersphere.evaluate.features import put_batch_statistics
from hypersphere.methods import Method
from hypersphere.nn.in_memory import remember_network
from hypersphere.nn.levels import Level
from hypersphere.nn.weights import CARD
from hypersphere.probes import EVERY_PROBE, PROBES, TRANSFER_PROBES
from hypersphere.runs.build import build_method, plan_of, view_pipeline
from hypersphere.runs.machine import evaluation_execution, pick_device
from hypersphere.runs.preprocess import Picture, Preprocess, device_of, encode_pictures
from hypersphere.runs.results import add_evaluation, evaluations_of, read_evaluations
from hypersphere.train import (
    load_checkpoint,
    read_metrics,
    restore,
)
from hypersphere.util.console import duration
from hypersphere.util.launcher import is_main_process
from hypersphere.util.notebook import html_table
from hypersphere.util.records import read_record
from hypersphere.util.run_files import CHECKPOINT, RUN_RECORD
from hypersphere.util.trust import check_code, is_trusted
from hypersphere.util.trust import trust as trust_path
from hypersphere.views import ViewPipeline

MEASURED = {  # values in metrics.jsonl that a notebook shows
    "loss": "last loss",
    "knn": "k-NN accuracy, %",
    "knn_at_start": "k-NN accuracy at the start, %",
    "uniformity_of_features": "uniformity of features",
    "effective_rank": "effective rank",
}


class RunRecord(TypedDict):
    """The content of run.json. Fields after the first are missing in runs of some earlier version."""

    config: dict[str, Any]
    hash: NotRequired[str]
    classes: NotRequired[int]
    training_images: NotRequired[int]
    job: NotRequired[str | None]
    images: NotRequired[str | None]


class Run:
    """A run in its folder, which has the files run.json, metrics.jsonl and checkpoint.pt.

    `hs.pretrain` and `hs.load_run` return it.

    Attributes:
        path: Folder of the run.
        config: All options.
        method: The method, with the encoder.
        step: Steps done so far.
        seconds: Training time so far.

    Example:
        >>> run = hs.load_run("runs/byol-digits-1a2b3c4d")  # doctest: +SKIP
        >>> run.encode(images).shape  # doctest: +SKIP
        torch.Size([16, 128])
    """

    given_encoder: nn.Module | None = None  # keeps an encoder in memory alive

    def __init__(self, path: Path, config: Config, method: Method, step: int, seconds: float) -> None:
        self.path, self.config, self.method, self.step, self.seconds = path, config, method, step, seconds

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {self.config.title} on {self.config.data}, {self.step:,} steps)"

    def _repr_html_(self) -> str:
        """A table for notebooks: what was trained, and what was measured last."""
        rows = [
            ("folder", str(self.path)),
            ("encoder", f"{self.config.encoder}, input {view_pipeline(self.config).size} px"),
            ("trained for", f"{self.step:,} steps of {self.config.batch} images, {duration(self.seconds)}"),
        ]
        last = {name: value for line in self.metrics for name, value in line.items() if value is not None}
        rows += [(text, f"{last[name]:.4g}") for name, text in MEASURED.items() if name in last]
        for holdout, found in evaluations_of(self.path, self.config.hash, self.step).items():
            accuracies = ((probe, values["top1"]) for probe, values in found.items() if "top1" in values)
            rows += [(f"{probe} on {holdout} images", f"{accuracy:.2f} %") for probe, accuracy in accuracies]
        return html_table(f"{self.config.title} on {self.config.data}", rows)

    @property
    def encoder(self) -> nn.Module:
        """The encoder, in evaluation mode, on its present device."""
        return self.method.encoder.eval()

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return read_metrics(self.path / "metrics.jsonl")

    @property
    def written_by(self) -> dict[str, Any]:
        """Code, versions and device when the run began, from run.json."""
        known = read_record(self.path / RUN_RECORD, RunRecord)
        return {name: value for name, value in known.items() if name != "config"}

    @cached_property
    def dataset(self) -> Dataset:
        """The dataset of the run."""
        return Dataset.resolve(self.config)

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        images = self.written_by.get("training_images")  # missing in older runs
        if images is None:
            images = len(self._training_set)
        return plan_of(self.config, images).steps

    @property
    def labelled(self) -> bool:
        """Whether the images have labels, so that accuracy can be measured."""
        classes = self.written_by.get("classes")  # missing in older runs
        if classes is None:
            classes = len(self._training_set.classes)
        return classes > 1

    @property
    def _training_set(self) -> Any:
        """The training images; of a run on files the list that it keeps, even if the files are gone."""
        if (self.path / FILES).is_file():
            return saved_files(self.path / FILES)[0]
        return self.dataset.split(self.config.holdout, self.path).train

    def encode(
        self, images: Tensor | np.ndarray | Iterable[Picture], level: Level | None = None, pooled: bool = False
    ) -> Tensor:
        """Compute the features of images, as `hs.load(run.path).encode` does.

        Args:
            images: Tensor or array of shape (N, C, H, W), (N, H, W, C) or (N, H, W), on any device, with numbers as
                `hs.pretrain` takes them; or a list of such images, paths, PIL images or contents of image files.
            level: None for the features. 1 to 4 for the maps of a stage of a ResNet, of shape (N, C, H, W), and
                "patches" for the patch tokens of a vision transformer, of shape (N, P, D).
            pooled: Whether to average the output of `level` over positions, to shape (N, C) or (N, D).

        Returns:
            Tensor of shape (N, D), float32, on the encoder's device.

        Raises:
            UserError: If an image cannot be read, or the encoder does not have the level.
        """
        return encode_pictures(self.encoder, Preprocess.of(self.config), images, level, pooled)

    def evaluate(
        self,
        probes: str | Sequence[str] | None = None,
        holdout: Holdout | None = None,
        *,
        transfer: str | Sequence[str] = (),
        progress: bool = False,
    ) -> Evaluation:
        """Evaluate the encoder with probes, and add the result of each to evaluation.json when it ends.

        Args:
            probes: Names of probes (None: linear, linear-cached, knn and few-shot; with `transfer` linear-cached
                and knn).
            holdout: Held-out images to evaluate on, "validation" or "test" (None: those of the run).
            transfer: Names of other datasets to evaluate on instead.
            progress: Whether to show a progress bar.

        Returns:
            The results by probe; with `transfer` the names are such as "transfer/cifar100/knn".

        Raises:
            UserError: If a probe or dataset is unknown, or if the images have no labels.
        """
        return self.measure(
            probes, holdout, transfer=transfer, progress=progress, after_probe=lambda part: self.keep(part, holdout)
        )

    def measure(
        self,
        probes: str | Sequence[str] | None = None,
        holdout: Holdout | None = None,
        *,
        transfer: str | Sequence[str] = (),
        after_probe: Callable[[Evaluation], None] = lambda found: None,
        **how: Any,
    ) -> Evaluation:
        """As `evaluate`, but do not write the results.

        Args:
            probes: As in `evaluate`.
            holdout: As in `evaluate`.
            transfer: As in `evaluate`.
            after_probe: Called with the results of each probe when it ends.
            how: `progress` and `baseline` of `evaluate_on`.
        """
        others = _names(transfer)
        probes = _names(probes if probes is not None else TRANSFER_PROBES if others else PROBES)
        if not probes:
            raise UserError(f"`probes` must be one or more of {', '.join(EVERY_PROBE)}")
        holdout = holdout or self.config.holdout
        if not others and holdout == "validation" and self.config.holdout == "test":
            raise UserError(
                f"{self.path} was trained on the validation images: evaluate it on the test set (`holdout` test)"
            )
        places: dict[str, Any] = self._transfer_places(others) if others else {"": {"run": self.path}}
        found: Evaluation = {}

        def add(prefix: str, part: Evaluation) -> None:
            named = {f"{prefix}{probe}": values for probe, values in part.items()}
            found.update(named)
            after_probe(named)

        for prefix, place in places.items():
            then = partial(add, prefix)
            evaluate_on(self.encoder, self.config, probes, holdout, **place, **how, after_probe=then)
        return found

    def _transfer_places(self, others: Sequence[str]) -> dict[str, dict[str, str]]:
        """The prefix of the results on other datasets, with the dataset."""
        available = [name for name in (*SOURCES, *FILE_SOURCES) if name != self.config.data]
        places = {}
        for name in others:
            try:
                dataset = Dataset.resolve(self.config.replace(data=name, labels=None))
            except UserError as error:
                choices = f"choose from {', '.join(available)}, or a folder"
                raise UserError(f"unknown `transfer` {name}: {choices}") from error
            dataset.check()  # before anything is measured
            if dataset.name == self.dataset.name:
                raise UserError(f"`transfer` {name} is the run's own dataset: choose from {', '.join(available)}")
            places[f"transfer/{name.strip('/')}/"] = {"data": dataset.name}
        return places

    def keep(self, found: Evaluation, holdout: Holdout | None = None) -> None:
        """Add an evaluation to evaluation.json, next to others of the same step."""
        if is_main_process():
            add_evaluation(self.path, self.config.hash, self.step, holdout or self.config.holdout, found)

    @property
    def evaluations(self) -> dict[str, Any]:
        """The content of evaluation.json: `hash`, `step`, and results by held-out set and probe."""
        return read_evaluations(self.path)


def _names(given: str | os.PathLike[str] | Sequence[str]) -> tuple[str, ...]:
    return (os.fspath(given),) if isinstance(given, str | os.PathLike) else tuple(map(os.fspath, given))


def evaluate_on(
    encoder: nn.Module,
    config: Config,
    probes: Sequence[str],
    holdout: Holdout,
    *,
    data: str | None = None,
    run: Path | None = None,
    progress: bool = False,
    baseline: bool = False,
    after_probe: Callable[[Evaluation], None] = lambda found: None,
) -> Evaluation:
    """Evaluate an encoder on the dataset of a config, or on `data`, on the device of the encoder.

    With `baseline`, an untrained encoder of the config is evaluated by the cheap probes, too.
    """
    device, pipeline, data, own = device_of(encoder), view_pipeline(config), data or config.data, config
    if data != config.data:
        config = config.replace(data=data, labels=None, size=pipeline.size)
        pipeline = transfer_views(Dataset.resolve(config).pipeline(pipeline.size), pipeline)
    dataset = Dataset.resolve(config)
    train, held_out = _loaders(dataset, holdout, pipeline, config.seed, device, run, progress)
    if not len(train) or not len(held_out):
        instead = f"hypersphere diagnose {run or 'RUN'} measures spread and collapse without labels"
        raise UserError(
            f"{data} has no labels, which probes need: {instead}, report shows neighbours and a map, and `transfer` "
            "measures on images with labels"
        )
    neighbours, temperature = dataset.voting
    how = evaluation_execution(config, device)
    with how.applied():
        found = evaluate_encoder(
            encoder.to(memory_format=how.layout),
            train,
            held_out,
            probes,
            neighbours=neighbours,
            temperature=temperature,
            seed=config.seed,
            precision=how.precision,
            progress=progress,
            baseline=(lambda: _untrained(own, train, device)) if baseline else None,
            after_probe=after_probe,
        )
    report_unreadable({**train.unreadable, **held_out.unreadable})
    return found


def _untrained(config: Config, images: Loader, device: torch.device) -> nn.Module:
    """An encoder with random weights, and the BatchNorm statistics of some images."""
    encoder = initial_encoder(config.replace(init=None, device=str(device)))
    put_batch_statistics(encoder, images)
    return encoder


def _loaders(
    dataset: Dataset,
    holdout: Holdout,
    pipeline: ViewPipeline,
    seed: int,
    device: torch.device,
    run: Path | None,
    progress: bool,
) -> list[Loader]:
    """Loaders of the labelled training and held-out images, converted to the channels of the encoder."""
    split = dataset.split(holdout, run)
    sets: tuple[Any, ...] = split
    if split.train.channels != len(pipeline.mean):
        sets = tuple(images.in_channels(len(pipeline.mean)) for images in dataset.in_memory(split))
    cache = dataset.options.cache
    return [images.loader(pipeline, seed, device, dataset.workers, progress, cache).labelled for images in sets]


def initial_encoder(config: Config) -> nn.Module:
    """The encoder with which a run of this config begins."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        method = build_method(config, channels=len(view_pipeline(config).mean), begin=True)
    return method.encoder.to(pick_device(config.device))


def random_encoder(config: Config) -> nn.Module:
    """An untrained encoder as a baseline, with BatchNorm statistics of the training images.

    With the initial statistics, 0 and 1, BatchNorm would not normalize.
    """
    encoder = initial_encoder(config)
    pixels, view = (
        _in_memory(config, config.holdout)[0].pixels.to(device_of(encoder)),
        center_view(view_pipeline(config)),
    )
    update_bn(map(view, pixels.tensor_split(1 + len(pixels) // 500)), encoder)
    return encoder


def held_out_features(encoder: nn.Module, config: Config, holdout: Holdout) -> Tensor:
    """The features of the held-out images, shape (N, D)."""
    device = device_of(encoder)
    how = evaluation_execution(config, device)
    pixels = _in_memory(config, holdout)[1].pixels.to(device)
    with how.applied():
        return extract(encoder, pixels, center_view(view_pipeline(config)), precision=how.precision)


def _in_memory(config: Config, holdout: Holdout) -> tuple[Images, Images]:
    dataset = Dataset.resolve(config)
    return dataset.in_memory(dataset.split(holdout))


def load_run(
    path: str | Path,
    device: str | torch.device = "auto",
    *,
    root: str | Path | None = None,
    data: Any = None,
    encoder: nn.Module | None = None,
    trust: bool = False,
) -> Run:
    """Load a run from its last checkpoint.

    Args:
        path: Folder of the run.
        device: Device of the encoder ("auto": a GPU if there is one).
        root: New location of the data, if they have moved since the run began.
        data: The images of a run on an object in memory, as they were passed to `hs.pretrain`. The run needs them only
            to be evaluated.
        encoder: A network like the one that was passed to `hs.pretrain` as an object. Its weights do not matter, and it
            stays as it is.
        trust: Whether to import and run code that the run names: its author's own method, encoder, regularizer or
            data. Runs that you made do not need it.

    Returns:
        The run: `run.encoder`, `run.encode(images)`, `run.evaluate()`.

    Raises:
        UserError: If the folder is not a run, has no checkpoint yet, or is damaged.

    Example:
        >>> run = hs.load_run("runs/byol-digits-1a2b3c4d")  # doctest: +SKIP
        >>> run.evaluate("knn")  # doctest: +SKIP
    """
    if trust:
        trust_path(path)
    path, config = Path(path), with_root(load_config(path), root)
    given = None if data is None else dataset_of(data)
    if given is not None and given.name != config.data:
        raise UserError(f"{path} was trained on {config.data}, not on the `data` given ({given.name})")
    check_given(path, config.encoder, encoder)
    run = last_state(path, config, device)
    run.given_encoder = encoder
    if given is not None:
        run.dataset = Dataset.resolve(config)  # keeps an object in memory alive
    return run


def last_state(path: Path, config: Config, device: str | torch.device) -> Run:
    """A run with its config as it is used now, from its last checkpoint."""
    method = build_method(config, len(view_pipeline(config).mean), max(2, _classes(path)))
    run = Run(path, config, method, 0, 0.0)
    put_state(run, load_checkpoint(path / CHECKPOINT))
    method.to(pick_device(device))
    return run


def check_given(path: Path, name: str, encoder: nn.Module | None) -> None:
    """Remember an encoder that the user passes again for a run or an exported encoder.

    Raises:
        UserError: If its architecture differs.
    """
    if encoder is None:
        return
    if not isinstance(encoder, nn.Module):
        raise UserError(f"`encoder` must be a torch.nn.Module, got {type(encoder).__name__}")
    if (found := remember_network(encoder)) != name:
        raise UserError(f"{path} has the encoder {name}, not the `encoder` given ({found})")


def put_state(run: Run, state: dict[str, Any]) -> None:
    """Load the state of a checkpoint into a run."""
    file = run.path / CHECKPOINT
    restore(run.method, state["method"], file)
    if state["hash"] != run.config.hash:
        raise UserError(f"{file} belongs to another run: its hash is {state['hash']}, not {run.config.hash}")
    run.step, run.seconds = state["step"], state["seconds"]


def load_config(path: str | Path, **advice: str) -> Config:
    """The config in run.json, after checking that the code which it names may be imported.

    Args:
        path: Folder of the run.
        **advice: `advice` for `check_code`.

    Raises:
        UserError: If the folder is not a run, run.json is damaged, or it names code that is not trusted.
    """
    config = read_config(path)
    named = code_named_in(config.to_json())
    check_code(Path(path) / RUN_RECORD, named, **advice)
    return read_config(path) if named else config  # now with the options of its method


def read_config(path: str | Path) -> Config:
    """The config in run.json, without importing code that it names: for comparing and showing it.

    Raises:
        UserError: If the folder is not a run, or run.json is damaged.
    """
    file = Path(path) / RUN_RECORD
    if not file.is_file():
        reason, card = "it has no run.json", Path(path) / CARD
        if card.is_file():
            classifies = "classifier" in read_record(card, dict[str, Any])
            kind = "a classifier, for predict" if classifies else "an exported encoder, for embed"
            reason = f"{kind}, diagnose and hs.load"
        if not Path(path).exists():
            raise UserError(f"run not found: {path} does not exist")
        raise UserError(f"{path} is not a run: {reason}")
    record = read_record(file, RunRecord)
    try:
        config = Config.from_json(record["config"])
        dataset = Dataset.resolve(config)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{file} is damaged ({error})") from None
    if not dataset.takes_root(begun=False):
        return config.replace(root=None)  # older runs keep a root that does not apply
    return config


def check_images(dataset: Dataset, *files: Path) -> None:
    """Check that images may be read because files name them, such as a run.json: these may come from a stranger.

    Raises:
        UserError: If the images are not of a dataset that has a name, and the user neither wrote nor trusts a file.
    """
    if not dataset.has_recipe and not is_trusted(*files):
        raise UserError(f"{files[0]} names images in {dataset.name}, which are not read: pass `trust` if you trust it")


def with_root(config: Config, root: str | Path | None) -> Config:
    """The config of a run whose data are in `root` now, if that is not None."""
    if root is not None:
        config = config.replace(root=root)
        Dataset.resolve(config).check_root()
    return config


def _classes(path: Path) -> int:
    """Number of classes of the training images; 2 for older runs, which do not record it."""
    return read_record(path / RUN_RECORD, RunRecord).get("classes", 2)
