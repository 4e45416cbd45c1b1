"""What a report shows of a run: its numbers, and the features of some images."""

import dataclasses
import functools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from hypersphere.config import Config, format_value
from hypersphere.data import Dataset, Images
from hypersphere.data.file_datasets import FILES
from hypersphere.data.splits import evenly
from hypersphere.diagnostics.collapse import in_words, stays_collapsed, watched
from hypersphere.errors import UserError
from hypersphere.runs.build import plan_of
from hypersphere.runs.results import read_evaluations
from hypersphere.runs.run import check_images, load_run, read_config, with_root
from hypersphere.sphere import unit
from hypersphere.train import read_metrics
from hypersphere.util.run_files import CHECKPOINT, RUN_RECORD
from hypersphere.util.trust import check_code

SAMPLE = 1000  # images: enough for a map, few enough to be part of the page
CURVE = 400  # points of a line: as many as can be distinguished
MOST_OPTIONS = 4  # in the name of a run


@dataclass(frozen=True, eq=False)
class Sample:
    """Some of the images that runs on a dataset hold out, or training images if they hold none out."""

    images: Images
    learnt: int  # number of training images in memory
    held_out: bool


@dataclass(frozen=True)
class Seen:
    """A sample with its features by the encoder of a run."""

    sample: Sample
    features: Tensor  # unit length, (N, D)
    step: int


@dataclass(frozen=True)
class RunData:
    """Everything that a report shows of one run."""

    path: Path
    config: Config
    written_by: dict[str, Any]  # versions and device, as run.json has them
    metrics: list[dict[str, Any]]
    evaluation: dict[str, Any]
    epoch_steps: int | None  # updates per epoch
    seen: Seen | None
    missing: tuple[str, ...] = ()  # notes for the reader: what is missing and why
    label: str = ""  # its name on the page

    @property
    def step(self) -> int:
        """The last step in the metrics or the checkpoint: a running run writes metrics more often."""
        return max([line["step"] for line in self.metrics] + ([self.seen.step] if self.seen else [0]))

    @property
    def names(self) -> list[str]:
        """Names of all measurements during training."""
        return list(dict.fromkeys(name for line in self.metrics for name in line))

    def curve(self, name: str) -> list[tuple[float, float]]:
        """Pairs (epoch, value) of a measurement during training, at most about `CURVE` of them."""
        if self.epoch_steps is None:
            return []
        found = [(line["step"] / self.epoch_steps, line[name]) for line in self.metrics if _is_number(line.get(name))]
        every = math.ceil(len(found) / CURVE) or 1
        return found[::-every][::-1]  # keeps the last one

    def last(self, name: str) -> float | None:
        """The last value of a measurement; None if there is none."""
        return next((line[name] for line in reversed(self.metrics) if _is_number(line.get(name))), None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def read_run_data(path: Path, device: str, root: Path | None) -> RunData:
    """Read a run's folder, and compute the features of some images.

    Args:
        path: Folder of the run.
        device: Device that computes the features.
        root: Folder of the data; None for the folder that the run was trained with.

    Returns:
        Everything that could be read; `missing` says what could not, and why.
    """
    config = read_config(path)
    metrics = read_metrics(path / "metrics.jsonl")
    sample, obstacle = _sample_or_why_not(config, path, root)
    seen, why_unseen = (None, obstacle) if sample is None else _seen_or_why_not(path, sample, device)
    run = RunData(
        path,
        config,
        written_by={name: value for name, value in _json(path / RUN_RECORD).items() if name != "config"},
        metrics=metrics,
        evaluation=read_evaluations(path),
        epoch_steps=_epoch_steps(path, config, metrics, sample),
        seen=seen,
    )
    return dataclasses.replace(run, missing=tuple(_missing(run, why_unseen)))


def _missing(run: RunData, why_unseen: str) -> Iterator[str]:
    if stays_collapsed(run.metrics, run.config.epochs, run.config.norm):
        last = watched(run.metrics, run.config.epochs, run.config.norm)[-1]
        yield f"its features have collapsed by epoch {last['epoch']}: {in_words(last)}"
    if run.seen is None:
        yield f"no densities, neighbours and map: {why_unseen}"
    elif not run.seen.sample.held_out:
        yield "the run holds out no images: those shown here are training images"
    if run.seen and run.seen.step < run.step:
        yield f"densities, neighbours and map are of the last checkpoint, after update {run.seen.step}"
    if not run.metrics:
        yield "no curves: nothing has been logged yet"
    elif run.epoch_steps is None:
        yield "no curves: without the images, the length of an epoch is not known"
    elif not any("epoch" in line for line in run.metrics):
        every = run.config.knn_every
        reason = f"the first comes after epoch {min(every, run.config.epochs)}" if every else "knn_every is 0"
        yield f"no k-NN accuracy, uniformity and energies: {reason}"
    elif run.last("knn") is None:
        yield "no k-NN accuracy: the images have no labels, or one class"
    if not run.evaluation:
        yield "not evaluated: there is no evaluation.json"
    elif run.seen and run.evaluation.get("step") != run.seen.step:
        step = run.evaluation.get("step")
        yield f"evaluation.json was written after update {step}, the checkpoint after update {run.seen.step}"


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class Began:
    """What a run began with: runs with the same files, or arrays, are equal."""

    files: bytes
    arrays: str | None
    run: Path = field(compare=False)


def _began(run: Path) -> Began:
    files = (run / FILES).read_bytes() if (run / FILES).is_file() else b""
    return Began(files, _json(run / RUN_RECORD).get("images"), run)


def _sample_or_why_not(config: Config, path: Path, root: Path | None) -> tuple[Sample | None, str]:
    of_data = {
        name: getattr(config, name)
        for name in ("data", "holdout", "root", "labels", "white", "mean", "std", "frames", "size", "workers")
    }
    try:
        config = Config().replace(**of_data)
        check_code(path / RUN_RECORD, {"data": config.data})
        dataset = Dataset.resolve(config)
        if root is None:
            check_images(dataset, path / RUN_RECORD, path / FILES)
        config = with_root(config, root if dataset.needs_root(path) else None)
        return sample_of(config, _began(path)), ""
    except UserError as error:
        return None, str(error)


@functools.cache  # runs on the same data share it, and its pictures
def sample_of(config: Config, began: Began | None) -> Sample:
    """Evenly from all that a run held out, whatever has been added since: of every class, even where they are sorted by
    it."""
    run = began.run if began else None
    dataset = Dataset.resolve(config)
    split = dataset.split(config.holdout, run)
    _, shown = dataset.in_memory(split, (1, SAMPLE))
    return Sample(shown[evenly(len(shown), SAMPLE)], len(split.train), split.apart)


def _seen_or_why_not(path: Path, sample: Sample, device: str) -> tuple[Seen | None, str]:
    if not (path / CHECKPOINT).exists():
        return None, "there is no checkpoint yet"
    try:
        run = load_run(path, device)
        features = unit(run.encode(sample.images.pixels)).cpu()
    except UserError as error:
        return None, str(error)
    return (Seen(sample, features, run.step), "") if features.isfinite().all() else (None, "features are not finite")


def _epoch_steps(path: Path, config: Config, metrics: list[dict[str, Any]], sample: Sample | None) -> int | None:
    """From the number of images, or from a line that says which epoch it ends."""
    if sample is not None:
        return plan_of(config, sample.learnt).steps_per_epoch
    return next((max(1, line["step"] // line["epoch"]) for line in metrics if line.get("epoch")), None)


def labelled(runs: Sequence[RunData]) -> list[RunData]:
    """Runs with the shortest labels that distinguish them."""
    titles = [run.config.title for run in runs]
    sets = [Path(run.config.data).name for run in runs]  # a set's name, or a folder
    on_sets = [f"{title} on {data}" for title, data in zip(titles, sets, strict=True)]
    plain = on_sets if len(set(sets)) > 1 else titles
    schemes = (
        titles,
        plain,
        _with_options(runs, plain, omitted=("data", "seed")),
        _with_options(runs, plain, omitted=("data",)),
        [f"{run.config.title} ({run.path.resolve().name})" for run in runs],
        [f"{run.config.title} ({run.path})" for run in runs],
    )
    names = next((names for names in schemes if len(set(names)) == len(names)), schemes[-1])
    return [dataclasses.replace(run, label=name) for run, name in zip(runs, names, strict=True)]


def _with_options(runs: Sequence[RunData], names: Sequence[str], omitted: Sequence[str]) -> list[str]:
    """Add to each name the options in which the runs of that name differ, if these are few."""
    found = []
    for run, name in zip(runs, names, strict=True):
        alike = [other.config for other, its in zip(runs, names, strict=True) if its == name]
        fields = {field for other in alike for field in alike[0].differences(other)} - set(omitted)
        options = [f"{field} {format_value(value)}" for field, value in vars(run.config).items() if field in fields]
        found.append(f"{name} ({', '.join(options)})" if 0 < len(options) <= MOST_OPTIONS else name)
    return found
