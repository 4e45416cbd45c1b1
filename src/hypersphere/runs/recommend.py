"""Which method to train if the user names none: the best one in recorded runs on similar images."""

import csv
import json
import math
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from hypersphere.methods.recipes import PHOTOGRAPH
from hypersphere.util.console import pluralize

FILE = "compared_runs.csv"  # in this package; `paper/compared_runs.py` writes it from results
NOT_ALONE = frozenset({"supervised", "distill"})  # methods that need labels, or a teacher


class ComparedRun(NamedTuple):
    """A recorded run of a method, or the mean of several seeds.

    Attributes:
        method: Method, such as "byol-uni".
        options: Options that differ from the method's recipe.
        data: Name of the dataset.
        images: Number of training images.
        side: Side of the encoder's input, in pixels.
        encoder: The encoder.
        epochs: Length of the run.
        knn: k-NN accuracy on held-out images, in %.
        linear: Accuracy of a linear classifier on stored features, in %; None if it was not measured.
        minutes: Training time; None if it was not measured alone on its device.
        device: Where it ran.
        seeds: Number of runs.
        holdout: Which images the accuracies are of: "validation" or "test".
        tested: Number of these images.
        source: The command or the result that it comes from.
    """

    method: str
    options: dict[str, Any]
    data: str
    images: int
    side: int
    encoder: str
    epochs: int
    knn: float
    linear: float | None
    minutes: float | None
    device: str
    seeds: int
    holdout: str
    tested: int
    source: str

    @property
    def setting(self) -> tuple[str, int, int, int]:
        """What runs must share to be compared."""
        return self.data, self.images, self.side, self.epochs

    @property
    def error(self) -> float:
        """Standard error of the k-NN accuracy that the choice of held-out images alone causes, in points."""
        return math.sqrt(self.knn * (100 - self.knn) / self.tested)


class Recommendation(NamedTuple):
    """A method for some images.

    Attributes:
        best: The run that is followed.
        others: Runs of other methods in the same setting, the best one of each, by k-NN accuracy.
    """

    best: ComparedRun
    others: list[ComparedRun]

    @property
    def method(self) -> str:
        return self.best.method

    @property
    def options(self) -> dict[str, Any]:
        return self.best.options

    def __str__(self) -> str:
        best, setting = self.best, f"{self.best.images:,} images of {self.best.data} after {self.best.epochs} epochs"
        compared = pluralize(1 + len(self.others), "method")
        others = "".join(f", {run.method} {run.knn:.1f} %" for run in self.others[:2])
        accuracies = f"k-NN accuracy {best.knn:.1f} %{others}; {pluralize(best.seeds, 'seed')}"
        better = any(run.knn > best.knn for run in self.others)
        rank = f"{'within a standard error of the ' * better}best of {compared}"
        return f"{best.method}: {rank} on {setting} ({accuracies})"

    def of(self, method: str) -> ComparedRun | None:
        """The best recorded run of a method in this setting, if there is one."""
        return next((run for run in (self.best, *self.others) if run.method == method), None)


@cache
def compared_runs() -> tuple[ComparedRun, ...]:
    """All recorded runs that methods are compared by."""
    lines = (files("hypersphere.runs") / FILE).read_text(encoding="utf-8").splitlines()
    return tuple(_parsed(row) for row in csv.DictReader(lines))


def _parsed(row: dict[str, str]) -> ComparedRun:
    numbers: dict[str, Any] = {name: int(row[name]) for name in ("images", "side", "epochs", "seeds", "tested")}
    numbers["knn"] = float(row["knn"])
    numbers |= {name: float(row[name]) if row[name] else None for name in ("linear", "minutes")}
    return ComparedRun(**{**row, **numbers, "options": json.loads(row["options"])})


def recommend(images: int | None, side: int, epochs: int, runs: Sequence[ComparedRun] | None = None) -> Recommendation:
    """The method with the best k-NN accuracy in the recorded setting that is most like the user's.

    A variant such as simclr-uni is taken only if it is better than the same method without it by more than a standard
    error of the accuracy.

    Photographs (more than 64 pixels a side) are compared with photographs only, and smaller images with smaller ones.
    Among several settings, the one counts whose runs saw the most similar number of images in all epochs together:
    which method is best depends on the length of training.

    Args:
        images: Number of training images; None if it is unknown.
        side: Shorter side of the images, in pixels.
        epochs: Length of the training.
        runs: Recorded runs; by default all.

    Example:
        >>> from hypersphere.runs.recommend import recommend
        >>> [recommend(images=50_000, side=32, epochs=epochs).method for epochs in (50, 300)]
        ['byol-uni', 'byol']
    """
    known = [run for run in (compared_runs() if runs is None else runs) if run.method not in NOT_ALONE]
    alike = [run for run in known if (run.side > PHOTOGRAPH) == (side > PHOTOGRAPH)]

    def distance(run: ComparedRun) -> float:
        shown = run.images if images is None else max(images, 1)
        return abs(math.log(run.images * run.epochs / (shown * epochs)))

    nearest = min(alike, key=distance).setting
    ranked = sorted((run for run in alike if run.setting == nearest), key=lambda run: -run.knn)
    best = {run.method: run for run in reversed(ranked)}
    chosen = ranked[0]
    plain = best.get(chosen.method.removesuffix("-mhe").removesuffix("-uni"), chosen)
    if plain.knn >= chosen.knn - chosen.error:
        chosen = plain
    others = [run for run in ranked if run is best[run.method] and run.method != chosen.method]
    return Recommendation(chosen, others)
