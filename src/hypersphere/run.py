"""A run: what a config makes of data, methods, training and evaluation. Behind the command line and `hs.pretrain`."""

import contextlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hypersphere.build import build_method, monitors_of, optimizer_of, plan_of, regularizer_of, try_encoder, view_recipe
from hypersphere.config import PRESETS, Config, preset, recipe
from hypersphere.data import SOURCES, Holdout, load_data
from hypersphere.errors import UserError
from hypersphere.evaluate import PROBES, Evaluation, centre, evaluate_encoder, extract
from hypersphere.files import next_free_folder, write_json
from hypersphere.machine import pick_device, pick_precision, provenance
from hypersphere.methods import Method
from hypersphere.progress import progress_bar
from hypersphere.train import Interrupted, Log, Trainer, load_checkpoint, read_metrics, restore, save_checkpoint, train
from hypersphere.views import Views


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
        """Probe the encoder on the run's held-out images, or those of `holdout`; evaluation.json keeps the results."""
        holdout = holdout or self.config.holdout
        if holdout == "validation" and self.config.holdout == "test":
            raise UserError(f"{self.path} learnt from the validation images: it can be evaluated on the test set alone")
        found = evaluate_on(self.encoder, self.config, probes, holdout, progress=progress)
        of_this = {"hash": self.config.hash, "step": self.step}
        before = self.evaluations
        if any(before.get(name) != value for name, value in of_this.items()):
            before = {}
        record = {**of_this, **before, holdout: {**before.get(holdout, {}), **found}}
        write_json(self.path / "evaluation.json", record)
        return found

    @property
    def evaluations(self) -> dict[str, Any]:
        """What evaluation.json holds: results by held-out set and probe."""
        try:
            found = json.loads((self.path / "evaluation.json").read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


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
    saved = load_config(resume)
    wanted = with_preset(saved, method).replace(**options)
    return go_on(Path(resume), agreeing(saved, wanted, resume), progress=progress)


def with_preset(saved: Config, method: str | None) -> Config:
    """A run's config, with what the name of a method says besides."""
    return saved if method is None else saved.replace(**preset(method))


def agreeing(saved: Config, wanted: Config, path: str | Path) -> Config:
    """The config wanted, if it would go on with what was begun."""
    differing = saved.differences(wanted) + ["precision"] * (saved.precision != wanted.precision)
    for name in differing:
        conflict = f"its {name} is {getattr(saved, name)!r}, not {getattr(wanted, name)!r}"
        raise UserError(f"cannot resume {path}: {conflict}; with --resume alone it goes on as it began")
    return wanted


def start(config: Config, *, progress: bool = True) -> Run:
    """A new run in a new folder, made once everything else is known to be right."""
    precision = pick_precision(config.precision, pick_device(config.device))
    return _train(config.replace(precision=precision), None, progress)


def go_on(path: Path, config: Config, *, progress: bool = True) -> Run:
    """From the last checkpoint in the folder, or the beginning, to the end of the plan."""
    return _train(config, path, progress)


def _train(config: Config, path: Path | None, progress: bool) -> Run:
    device = pick_device(config.device)
    precision = getattr(torch, pick_precision(config.precision, device))
    learnt, held_out = (images.to(device) for images in load_data(config.data, config.holdout, config.root))
    plan, views = plan_of(config, len(learnt)), Views(view_recipe(config), config.seed)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(config.seed)
        method = build_method(config, learnt.channels).to(device)
        try_encoder(config, method, learnt)
        trainer = Trainer(method, optimizer_of(config, method), regularizer_of(config, method), device, precision)
        run = Run(path or _new_folder(config), config, method, 0, 0.0)
        if path is None:
            record = {"config": config.to_json(), "hash": config.hash, **provenance(device)}
            write_json(run.path / "run.json", record)
        elif (path / "checkpoint.pt").exists():
            state = _load(run)
            trainer.restore(state)
        began = time.monotonic() - run.seconds

        def save() -> None:
            run.step, run.seconds = trainer.step, time.monotonic() - began
            state = {"hash": config.hash, "seconds": run.seconds, **trainer.state()}
            save_checkpoint(run.path / "checkpoint.pt", state)

        log = Log(run.path, trainer.step)
        monitors = monitors_of(config, learnt, held_out)
        centred = centre(views.recipe)
        title = f"{config.title} on {config.data}"
        with contextlib.closing(log), progress_bar(title, plan.steps, trainer.step, progress) as bar:
            try:
                train(
                    trainer,
                    learnt,
                    views,
                    plan,
                    log=log,
                    save=save,
                    monitors=monitors,
                    progress=bar,
                    features=lambda: extract(method.encoder, learnt.pixels, centred),
                )
            except Interrupted as stop:
                stop.args = (f"stopped after update {stop.step} of {plan.steps}: go on with --resume {run.path}",)
                raise
    return run


def load_run(path: str | Path, device: str = "auto") -> Run:
    """A run as its last checkpoint left it."""
    path, config = Path(path), load_config(path)
    method = build_method(config, channels=len(view_recipe(config).mean))
    run = Run(path, config, method, 0, 0.0)
    _load(run)
    method.to(pick_device(device))
    return run


def _load(run: Run) -> dict[str, Any]:
    """The last checkpoint of a run: its method restored, the rest returned."""
    file = run.path / "checkpoint.pt"
    state = load_checkpoint(file)
    restore(run.method, state["method"], file)
    if state["hash"] != run.config.hash:
        raise UserError(f"{file} belongs to another run: its hash is {state['hash']}, not {run.config.hash}")
    run.step, run.seconds = state["step"], state["seconds"]
    return state


def load_config(path: str | Path) -> Config:
    file = Path(path) / "run.json"
    if not file.is_file():
        raise UserError(f"{path} is not a run: it has no run.json")
    try:
        return Config.from_json(json.loads(file.read_text())["config"])
    except (OSError, KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{file} is damaged ({error})") from None


def _new_folder(config: Config) -> Path:
    """The folder asked for, which must be empty; or the next free one in runs/."""
    if config.out is None:
        return next_free_folder(Path("runs") / f"{config.title}-{config.data}-{config.hash[:8]}")
    if config.out.is_dir() and not any(config.out.iterdir()):
        return config.out
    if config.out.is_file():
        raise UserError(f"--out {config.out} is a file: choose a folder")
    if config.out.exists():
        raise UserError(f"{config.out} is not empty: go on with --resume {config.out}, or choose another --out")
    return next_free_folder(config.out)
