"""A run: its folder, its encoder, and what probes find in it."""

import json
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from hypersphere.config import Config
from hypersphere.data import FILE_SOURCES, SOURCES, Dataset, Holdout, Images, Loader
from hypersphere.data.loader import center_view
from hypersphere.errors import UserError
from hypersphere.evaluate import (
    Evaluation,
    evaluate_encoder,
    extract,
    in_channels,
    transferred,
)
from hypersphere.methods import Method
from hypersphere.nn.weights import CARD
from hypersphere.probes import EVERY_PROBE, PROBES, TRANSFER_PROBES
from hypersphere.runs.build import build_method, plan_of, view_recipe
from hypersphere.runs.machine import evaluation_of, pick_device
from hypersphere.runs.results import add_evaluation, read_evaluations
from hypersphere.train import (
    load_checkpoint,
    read_metrics,
    restore,
)
from hypersphere.util.launch import is_first
from hypersphere.views import Recipe


class Run:
    """A folder with run.json, metrics.jsonl and checkpoint.pt."""

    def __init__(self, path: Path, config: Config, method: Method, step: int, seconds: float) -> None:
        self.path, self.config, self.method, self.step, self.seconds = path, config, method, step, seconds

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {self.config.title} on {self.config.data}, {self.step:,} updates)"

    @property
    def encoder(self) -> nn.Module:
        """In evaluation mode, on the device it was trained on."""
        return self.method.encoder.eval()

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.path / "metrics.jsonl")

    @property
    def written_by(self) -> dict[str, Any]:
        """Code, versions and device with which it began."""
        known: dict[str, Any] = json.loads((self.path / "run.json").read_text())
        return {name: value for name, value in known.items() if name != "config"}

    @cached_property
    def dataset(self) -> Dataset:
        """What it learns from."""
        return Dataset.resolve(self.config)

    @property
    def steps(self) -> int:
        """Updates that make the whole run."""
        images = self.written_by.get("training_images")  # older runs do not say it
        if images is None:
            images = len(self.dataset.split(self.config.holdout, self.path).train)
        return plan_of(self.config, images).steps

    @property
    def labelled(self) -> bool:
        """Whether its images have labels to measure accuracy by."""
        classes = self.written_by.get("classes")  # older runs do not say it
        if not isinstance(classes, int):
            classes = len(self.dataset.split(self.config.holdout, self.path).train.classes)
        return classes > 1

    def encode(self, images: Tensor | np.ndarray) -> Tensor:
        """Features, N × D in float32 on the encoder's device, of N × C × H × W images as bytes, on any device."""
        recipe = view_recipe(self.config)
        pixels = torch.from_numpy(np.array(images, order="C")) if isinstance(images, np.ndarray) else images
        if not isinstance(pixels, Tensor) or pixels.dtype != torch.uint8:
            found = pixels.dtype if isinstance(pixels, Tensor) else type(pixels).__name__
            raise UserError(f"images must be a tensor or array of uint8 (0 to 255), not {found}")
        side = recipe.size if recipe.resize is None else None  # None: any
        wanted = (len(recipe.mean), side, side)
        if pixels.ndim != 4 or any(n not in (None, m) for n, m in zip(wanted, pixels.shape[1:], strict=True)):
            shape = " × ".join(str(n or "any") for n in wanted)
            raise UserError(f"images must be of shape N × {shape}, not {tuple(pixels.shape)}")
        device, view = _device_of(self.encoder), center_view(recipe)
        return extract(self.encoder, pixels, lambda part: view(part.to(device)))

    def evaluate(
        self,
        probes: str | Sequence[str] | None = None,
        holdout: Holdout | None = None,
        *,
        transfer: str | Sequence[str] = (),
        progress: bool = False,
    ) -> Evaluation:
        """Probe the encoder on the run's held-out images, or those of `holdout`; evaluation.json keeps the results.

        `transfer` names other data sets, whose images are measured instead: {"transfer/cifar100/knn": …}.
        """
        found = self.measure(probes, holdout, transfer=transfer, progress=progress)
        self.keep(found, holdout)
        return found

    def measure(
        self,
        probes: str | Sequence[str] | None = None,
        holdout: Holdout | None = None,
        *,
        transfer: str | Sequence[str] = (),
        progress: bool = False,
    ) -> Evaluation:
        """What `evaluate` finds, written nowhere."""
        others = _names(transfer)
        probes = _names(probes if probes is not None else TRANSFER_PROBES if others else PROBES)
        if not probes:
            raise UserError(f"`probes` must be one or more of {', '.join(EVERY_PROBE)}")
        holdout = holdout or self.config.holdout
        if others:
            return self._transfer(probes, holdout, others, progress)
        if holdout == "validation" and self.config.holdout == "test":
            raise UserError(f"{self.path} learnt from the validation images: it can be evaluated on the test set alone")
        return evaluate_on(self.encoder, self.config, probes, holdout, run=self.path, progress=progress)

    def _transfer(self, probes: Sequence[str], holdout: Holdout, others: Sequence[str], progress: bool) -> Evaluation:
        there = [name for name in (*SOURCES, *FILE_SOURCES) if name != self.config.data]
        paths = {}
        for name in others:
            try:
                dataset = Dataset.resolve(self.config.replace(data=name, labels=None))
                dataset.recipe_hints()  # a folder without images is reported before anything is measured
            except UserError as error:
                if os.path.exists(name):
                    raise
                raise UserError(f"`transfer` {name} is unknown: choose from {', '.join(there)}, or a folder") from error
            if dataset.name == self.dataset.name:
                raise UserError(f"`transfer` {name} is what the run learned from: choose from {', '.join(there)}")
            paths[name] = dataset.name
        found: Evaluation = {}
        for name, path in paths.items():
            measured = evaluate_on(self.encoder, self.config, probes, holdout, data=path, progress=progress)
            found |= {f"transfer/{name.strip('/')}/{probe}": values for probe, values in measured.items()}
        return found

    def keep(self, found: Evaluation, holdout: Holdout | None = None) -> None:
        """Add an evaluation to evaluation.json, beside others of this state of the encoder."""
        if is_first():
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
) -> Evaluation:
    """Probe any encoder on a config's data, or on other `data`, on the encoder's device if it has one."""
    device, pipeline, data = _device_of(encoder), view_recipe(config), data or config.data
    if data != config.data:
        config = config.replace(data=data, labels=None, size=pipeline.size)
        pipeline = transferred(Dataset.resolve(config).pipeline(pipeline.size), pipeline)
    dataset = Dataset.resolve(config)
    learnt, held_out = _loaders(dataset, holdout, pipeline, config.seed, device, run, progress)
    if not len(learnt) or not len(held_out):
        raise UserError(f"the images of {data} have no labels to probe with: hypersphere diagnose needs none")
    neighbours, temperature = dataset.voting
    how = evaluation_of(config, device)
    with how.applied():
        return evaluate_encoder(
            encoder.to(memory_format=how.layout),
            learnt,
            held_out,
            probes,
            neighbours=neighbours,
            temperature=temperature,
            seed=config.seed,
            precision=how.precision,
            progress=progress,
        )


def _loaders(
    dataset: Dataset,
    holdout: Holdout,
    pipeline: Recipe,
    seed: int,
    device: torch.device,
    run: Path | None,
    progress: bool,
) -> list[Loader]:
    """Training and held-out images with a known label, in the channels that the encoder takes."""
    split = dataset.split(holdout, run)
    sets: tuple[Any, ...] = split
    if split.train.channels != len(pipeline.mean):
        sets = tuple(in_channels(some, len(pipeline.mean)) for some in dataset.in_memory(split))
    return [some.loader(pipeline, seed, device, dataset.workers, progress).labelled for some in sets]


def initial_encoder(config: Config) -> nn.Module:
    """As a run of this config begins with it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        method = build_method(config, channels=len(view_recipe(config).mean), begin=True)
    return method.encoder.to(pick_device(config.device))


def random_encoder(config: Config) -> nn.Module:
    """Untrained, to compare with. Its BatchNorm has the statistics of the training images, as a trained one's has: with
    those it begins with, 0 and 1, it would normalize nothing."""
    encoder = initial_encoder(config)
    pixels, view = (
        _in_memory(config, config.holdout)[0].pixels.to(_device_of(encoder)),
        center_view(view_recipe(config)),
    )
    update_bn(map(view, pixels.tensor_split(1 + len(pixels) // 500)), encoder)
    return encoder


def held_out_features(encoder: nn.Module, config: Config, holdout: Holdout) -> Tensor:
    device = _device_of(encoder)
    how = evaluation_of(config, device)
    pixels = _in_memory(config, holdout)[1].pixels.to(device)
    with how.applied():
        return extract(encoder, pixels, center_view(view_recipe(config)), precision=how.precision)


def _in_memory(config: Config, holdout: Holdout) -> tuple[Images, Images]:
    dataset = Dataset.resolve(config)
    return dataset.in_memory(dataset.split(holdout))


def _device_of(encoder: nn.Module) -> torch.device:
    weights = next(encoder.parameters(), None)
    return torch.device("cpu") if weights is None else weights.device


def load_run(path: str | Path, device: str | torch.device = "auto", *, root: str | Path | None = None) -> Run:
    """A run as its last checkpoint left it; its data lie in `root`, where they have moved since it began."""
    path, config = Path(path), with_root(load_config(path), root)
    method = build_method(config, len(view_recipe(config).mean), max(2, _classes(path)))
    run = Run(path, config, method, 0, 0.0)
    put_state(run, load_checkpoint(path / "checkpoint.pt"))
    method.to(pick_device(device))
    return run


def put_state(run: Run, state: dict[str, Any]) -> None:
    file = run.path / "checkpoint.pt"
    restore(run.method, state["method"], file)
    if state["hash"] != run.config.hash:
        raise UserError(f"{file} belongs to another run: its hash is {state['hash']}, not {run.config.hash}")
    run.step, run.seconds = state["step"], state["seconds"]


def load_config(path: str | Path) -> Config:
    file = Path(path) / "run.json"
    if not file.is_file():
        exported = (Path(path) / CARD).is_file()
        reason = "an exported encoder, which embed, diagnose and hs.load take" if exported else "it has no run.json"
        raise UserError(f"{path} is not a run: {reason}")
    try:
        config = Config.from_json(json.loads(file.read_text())["config"])
        dataset = Dataset.resolve(config)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{file} is damaged ({error})") from None
    if not dataset.takes_root(begun=False):
        return config.replace(root=None)  # older runs kept any
    return config


def with_root(config: Config, root: str | Path | None) -> Config:
    """The config of a run whose data are in `root` now, if that is not None."""
    if root is not None:
        config = config.replace(root=root)
        Dataset.resolve(config).check_root()
    return config


def _classes(path: Path) -> int:
    """Of the images that a run learns from; older runs, which need it not, do not know."""
    found = json.loads((path / "run.json").read_text()).get("classes", 2)
    return found if isinstance(found, int) else 2
