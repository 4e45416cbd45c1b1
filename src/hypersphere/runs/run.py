"""A run: its folder, its encoder, and what probes find in it."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from hypersphere.config import Config
from hypersphere.data import FILE_SOURCES, SOURCES, Holdout, Listing, load_data
from hypersphere.data.lists import FILES, files_of, parts_of, saved_files, takes_root, with_root
from hypersphere.data.sets import images_of, in_files, voting_of, workers_of
from hypersphere.errors import UserError
from hypersphere.evaluate import (
    Evaluation,
    InMemory,
    Pictures,
    centre,
    evaluate_encoder,
    extract,
    in_channels,
    transferred,
)
from hypersphere.evaluate.probing import InFiles
from hypersphere.methods import Method
from hypersphere.nn.weights import CARD
from hypersphere.presets import is_folder
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
from hypersphere.util.written import is_arrays
from hypersphere.views import RECIPES, Recipe, Views, folder_recipe


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

    @property
    def steps(self) -> int:
        """Updates that make the whole run."""
        files = learnt_files(self.config, self.path)
        data = load_data(self.config.data, self.config.holdout, self.config.root)[0] if files is None else files
        return plan_of(self.config, len(data)).steps

    @property
    def labelled(self) -> bool:
        """Whether its images have labels to measure accuracy by."""
        if is_arrays(self.config.data):
            return _classes(self.path) > 1
        files = learnt_files(self.config, self.path)
        return files is None or len(files.classes) > 1

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
        device, view = _device_of(self.encoder), centre(recipe)
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
        paths = {name: name if name in there or not os.path.exists(name) else os.path.abspath(name) for name in others}
        for name, path in paths.items():
            if path == self.config.data or not (name in there or is_folder(path) or is_arrays(path)):
                reason = "is what the run learnt from" if path == self.config.data else "is unknown"
                raise UserError(f"`transfer` {name} {reason}: choose from {', '.join(there)}, or images of your own")
            if is_folder(path):
                parts_of(path, None)  # a folder without images is told before anything is measured
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
    device, recipe, data = _device_of(encoder), view_recipe(config), data or config.data
    if data != config.data:
        config = config.replace(data=data, labels=None, size=recipe.size)
        recipe = transferred(RECIPES.get(data, folder_recipe(recipe.size)), recipe)
    sets = _pictures(config, holdout, recipe, device, run, progress)
    if len(sets) < 2 or not all(map(len, sets)):
        raise UserError(f"the images of {data} have no labels to probe with: hypersphere diagnose needs none")
    learnt, held_out = sets
    neighbours, temperature = voting_of(data)
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


def _pictures(
    config: Config, holdout: Holdout, recipe: Recipe, device: torch.device, run: Path | None, progress: bool
) -> list[Pictures]:
    """What is learnt from and what is held out, of which the labels are known."""
    if in_files(config) and len(recipe.mean) == 3:
        given = (recipe, config.seed, device, workers_of(config), progress)
        return [InFiles(files, *given).labelled for files in files_of(config, holdout, run) if files.labels is not None]
    images = (some.to(device).labelled for some in images_of(config, holdout, run=run))
    return [InMemory(in_channels(some, len(recipe.mean)), Views(recipe, config.seed)) for some in images]


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
    pixels, view = images_of(config, config.holdout)[0].pixels.to(_device_of(encoder)), centre(view_recipe(config))
    update_bn(map(view, pixels.tensor_split(1 + len(pixels) // 500)), encoder)
    return encoder


def held_out_features(encoder: nn.Module, config: Config, holdout: Holdout) -> Tensor:
    device = _device_of(encoder)
    how = evaluation_of(config, device)
    pixels = images_of(config, holdout)[1].pixels.to(device)
    with how.applied():
        return extract(encoder, pixels, centre(view_recipe(config)), precision=how.precision)


def _device_of(encoder: nn.Module) -> torch.device:
    weights = next(encoder.parameters(), None)
    return torch.device("cpu") if weights is None else weights.device


def learnt_files(config: Config, path: Path | None) -> Listing | None:
    """The files that a run learns from, as they were at its start; None where images are held in memory."""
    if not in_files(config):
        return None
    if path is not None and (path / FILES).is_file():  # wherever they lie now
        return saved_files(path / FILES)[0]
    return files_of(config, config.holdout, path)[0]


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
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{file} is damaged ({error})") from None
    return config if takes_root(config, begun=False) else config.replace(root=None)  # older runs kept any


def _classes(path: Path) -> int:
    """Of the images that a run learns from; older runs, which need it not, do not know."""
    found = json.loads((path / "run.json").read_text()).get("classes", 2)
    return found if isinstance(found, int) else 2
