"""A run: what a config makes of data, methods, training and evaluation. Behind the command line and `hs.pretrain`."""

import contextlib
import dataclasses
import inspect
import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hypersphere.config import PRESETS, Config, recipe
from hypersphere.data import SOURCES, Holdout, Images, load_data
from hypersphere.errors import UserError
from hypersphere.evaluate import PROBES, Evaluation, KnnMonitor, evaluate_encoder
from hypersphere.methods import METHODS, Method
from hypersphere.nn import build_encoder, features_of
from hypersphere.optim import build_optimizer, scaled
from hypersphere.progress import progress_bar
from hypersphere.regularize import EnergyRegularizer
from hypersphere.train import (
    Interrupted,
    Log,
    Plan,
    Trainer,
    load_checkpoint,
    read_metrics,
    restore,
    save_checkpoint,
    train,
    write_atomically,
)
from hypersphere.views import RECIPES, Recipe, Views


class Run:
    """A folder with run.json, metrics.jsonl and checkpoint.pt."""

    def __init__(self, path: Path, config: Config, method: Method, step: int, seconds: float) -> None:
        self.path, self.config, self.method, self.step, self.seconds = path, config, method, step, seconds

    @property
    def encoder(self) -> nn.Module:
        """In evaluation mode, on the device it was trained on."""
        return self.method.encoder.eval()

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.path / "metrics.jsonl")

    def evaluate(
        self, probes: Sequence[str] = PROBES, holdout: Holdout | None = None, *, progress: bool = False
    ) -> Evaluation:
        """Probe the encoder on the run's held-out images (or those of `holdout`); also written to evaluation.json."""
        holdout = holdout or self.config.holdout
        found = evaluate_on(self.encoder, self.config, probes, holdout, progress=progress)
        record = {"holdout": holdout, "step": self.step, "hash": self.config.hash, "results": found}
        write_atomically(self.path / "evaluation.json", (json.dumps(record, indent=2) + "\n").encode())
        return found


def evaluate_on(
    encoder: nn.Module, config: Config, probes: Sequence[str], holdout: Holdout, *, progress: bool = False
) -> Evaluation:
    """Probe any encoder on a config's data, on the encoder's device if it has one."""
    weights = next(encoder.parameters(), None)
    device = torch.device("cpu") if weights is None else weights.device
    learnt, held_out = (images.to(device) for images in load_data(config.data, holdout, config.root))
    source = SOURCES[config.data]
    return evaluate_encoder(
        encoder,
        learnt,
        held_out,
        view_recipe(config),
        probes,
        neighbours=source.neighbours,
        temperature=source.temperature,
        seed=config.seed,
        progress=progress,
    )


def pretrain(
    method: str | None = None,
    data: str | None = None,
    *,
    resume: str | Path | None = None,
    progress: bool = True,
    **options: Any,
) -> Run:
    """Learn an encoder: `pretrain("byol-mhe", data="digits", epochs=50)`.

    `options` are the fields of `Config`. `resume` goes on with the run in that folder; what is said besides must agree
    with what it was started with.
    """
    if data is not None:
        options["data"] = data
    if resume is None:
        if method is None:
            raise UserError(f"say which method to train: {', '.join(PRESETS)}")
        return start(recipe(method, **options), progress=progress)
    path, saved = Path(resume), load_config(resume)
    return go_on(path, saved.replace(**agreeing(saved, path, method, options)), progress=progress)


def agreeing(saved: Config, path: Path, method: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """The options, if none contradicts the run that is to go on."""
    if method is not None and method not in PRESETS:
        recipe(method)  # says which there are
    wanted = saved.replace(**{**PRESETS.get(method or "", {}), **options})
    for name in saved.differences(wanted):
        was, asked = getattr(saved, name), getattr(wanted, name)
        raise UserError(f"cannot resume {path}: its {name} is {was!r}, not {asked!r}")
    return options


def start(config: Config, *, progress: bool = True) -> Run:
    """A new run in a new folder, made once everything else is known to be right."""
    return _train(config, None, progress)


def go_on(path: Path, config: Config, *, progress: bool = True) -> Run:
    """From the last checkpoint in the folder, or the beginning, to the end of the plan."""
    return _train(config, path, progress)


def _train(config: Config, path: Path | None, progress: bool) -> Run:
    device, precision = pick_device(config.device), pick_precision(config)
    learnt, held_out = (images.to(device) for images in load_data(config.data, config.holdout, config.root))
    plan, views = make_plan(config, len(learnt)), Views(view_recipe(config), config.seed)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(config.seed)
        method = build_method(config, learnt.channels).to(device)
        trainer = Trainer(method, _optimizer(config, method), regularizer_of(config, method), device, precision)
        run = Run(path or _new_folder(config), config, method, 0, 0.0)
        if path is None:
            record = {"config": config.to_json(), "hash": config.hash, **provenance()}
            write_atomically(run.path / "run.json", (json.dumps(record, indent=2) + "\n").encode())
        elif (path / "checkpoint.pt").exists():
            _restore(run, trainer)
        began = time.monotonic() - run.seconds

        def save() -> None:
            run.step, run.seconds = trainer.step, time.monotonic() - began
            state = {"hash": config.hash, "seconds": run.seconds, **trainer.state()}
            save_checkpoint(run.path / "checkpoint.pt", state)

        log = Log(run.path, trainer.step)
        monitors = _monitors(config, learnt, held_out)
        title = f"{config.title} on {config.data}"
        with contextlib.closing(log), progress_bar(title, plan.steps, trainer.step, progress) as bar:
            try:
                train(trainer, learnt, views, plan, log=log, save=save, monitors=monitors, progress=bar)
            except Interrupted as stop:
                stop.args = (f"stopped after update {stop.step} of {plan.steps}: go on with --resume {run.path}",)
                raise
    return run


def load_run(path: str | Path, device: str = "auto") -> Run:
    """A run as its last checkpoint left it."""
    path, config = Path(path), load_config(path)
    channels = len(view_recipe(config).mean)
    method = build_method(config, channels)
    state = load_checkpoint(path / "checkpoint.pt")
    restore(method, state["method"], path / "checkpoint.pt")
    return Run(path, config, method.to(pick_device(device)), state["step"], state["seconds"])


def load_config(path: str | Path) -> Config:
    file = Path(path) / "run.json"
    if not file.is_file():
        raise UserError(f"{path} is not a run: it has no run.json")
    try:
        return Config.from_json(json.loads(file.read_text())["config"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{file} is damaged ({error})") from None


def build_method(config: Config, channels: int) -> Method:
    """A method takes from the config the options that it names."""
    encoder = build_encoder(
        config.encoder, channels=channels, stem=config.stem, norm=config.norm, dimensions=config.dimensions
    )
    kind = METHODS[config.method]
    options = {
        name: getattr(config, name) for name in inspect.signature(kind.__init__).parameters if hasattr(config, name)
    }
    return kind(**{**options, "encoder": encoder, "features": features_of(encoder)})


def regularizer_of(config: Config, method: Method) -> EnergyRegularizer | None:
    if config.energy == 0:
        return None
    try:
        return EnergyRegularizer(
            method,
            s=config.energy_s,
            metric=config.energy_metric,
            weight=config.energy,
            half_space=config.energy_half_space,
            where=config.energy_layers,
        )
    except ValueError as error:
        raise UserError(f"--energy-layers: {error}") from None


def view_recipe(config: Config) -> Recipe:
    views = RECIPES[config.data]
    if config.crop_min is None:
        return views
    crops = [dataclasses.replace(a, crop=(config.crop_min, a.crop[1])) for a in views.augmentations]
    return dataclasses.replace(views, augmentations=tuple(crops))


def make_plan(config: Config, images: int) -> Plan:
    if config.batch > images:
        raise UserError(f"--batch {config.batch} is more than the {images} training images of {config.data}")
    return Plan(
        images=images,
        epochs=config.epochs,
        batch=config.batch,
        micro_batch=config.micro_batch or config.batch,
        lr=scaled(config.lr, config.batch),
        warmup_epochs=config.warmup,
        seed=config.seed,
        log_every=config.log_every,
        save_every=config.save_every,
    )


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {name} cannot be used here ({str(error).splitlines()[0]})") from None
    return device


def pick_precision(config: Config) -> torch.dtype:
    if config.precision != "auto":
        return getattr(torch, config.precision)
    fast = pick_device(config.device).type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if fast else torch.float32


def provenance() -> dict[str, str]:
    """Which code, on what."""
    try:
        ours = version("hypersphere")
    except PackageNotFoundError:
        ours = "unknown"
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return {
        "version": ours,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **gpu,
    }


def _commit() -> str:
    """Of the checkout this code runs from; or $HYPERSPHERE_COMMIT, where there is none."""
    here = Path(__file__).resolve().parents[2]
    if (here / ".git").exists():
        command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.strip()
    return os.environ.get("HYPERSPHERE_COMMIT", "unknown")


def _optimizer(config: Config, method: Method) -> torch.optim.Optimizer:
    return build_optimizer(
        config.optimizer,
        method.parameter_groups(),
        weight_decay=config.weight_decay,
        momentum=config.momentum,
        trust=config.trust,
    )


def _monitors(config: Config, learnt: Images, held_out: Images) -> list[KnnMonitor]:
    if config.knn_every == 0:
        return []
    source = SOURCES[config.data]
    views = view_recipe(config)
    return [KnnMonitor(config.knn_every, learnt, held_out, views, source.neighbours, source.temperature)]


def _restore(run: Run, trainer: Trainer) -> None:
    file = run.path / "checkpoint.pt"
    state = load_checkpoint(file)
    restore(trainer.method, state["method"], file)
    trainer.optimizer.load_state_dict(state["optimizer"])
    trainer.scaler.load_state_dict(state["scaler"])
    torch.set_rng_state(state["random"])
    run.step = trainer.step = state["step"]
    run.seconds = state["seconds"]


def _new_folder(config: Config) -> Path:
    """The folder asked for, which must be empty; or the next free name in runs/."""
    if config.out is not None:
        path = config.out
        if path.is_dir() and any(path.iterdir()):
            raise UserError(f"{path} is not empty: go on with --resume {path}, or choose another --out")
        candidates = [path]
    else:
        stem = Path("runs") / f"{config.title}-{config.data}-{config.hash[:8]}"
        candidates = [stem, *(stem.with_name(f"{stem.name}-{n}") for n in range(2, 10_000))]
    for path in candidates:
        try:
            path.mkdir(parents=True, exist_ok=config.out is not None)
            return path
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(f"cannot make the folder {path}: {error.strerror}") from None
    raise UserError(f"{candidates[0]} cannot be made a folder: choose another --out")
