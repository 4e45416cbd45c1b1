"""How well measures without labels predict linear accuracy: over all recorded runs of one dataset and protocol."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hypersphere.runs.results import Result

LEAST = 4  # runs of a group
RESAMPLES, LEVEL = 4000, 0.95
PROBES = ("linear", "linear-cached")  # what is predicted: the first that a run has


class Measure(NamedTuple):
    """A measure by which a run could be chosen.

    Attributes:
        title: Its name in tables.
        key: Where a result has it: probe/measure in its evaluation, or history/measure in the last epoch.
        score: Turns a value into one that is higher for better runs.
    """

    title: str
    key: str
    score: Callable[[float], float]


def _higher(value: float) -> float:
    return value


def _lower(value: float) -> float:
    return -value


def _near_one(value: float) -> float:
    return -abs(value - 1)


MEASURES = (
    Measure("uniformity (lower)", "sphere/uniformity", _lower),
    Measure("Wasserstein uniformity (lower)", "sphere/wasserstein_uniformity", _lower),
    Measure("alignment (lower)", "sphere/alignment", _lower),
    Measure("alignment in training (lower)", "history/alignment", _lower),
    Measure("effective rank (higher)", "sphere/effective_rank", _higher),
    Measure("RankMe (higher)", "sphere/rankme", _higher),
    Measure("LiDAR (higher)", "sphere/lidar", _higher),
    Measure("alpha-ReQ (near 1)", "sphere/alpha_req", _near_one),
    Measure("cluster learnability (higher)", "sphere/cluster_learnability", _higher),
    Measure("intrinsic dimension (higher)", "sphere/intrinsic_dimension", _higher),
)
WITH_LABELS = Measure("k-NN accuracy, with labels", "knn/top1", _higher)  # to compare with


class Prediction(NamedTuple):
    """How well a measure predicts the accuracy of a group's runs.

    Attributes:
        measure: The measure.
        runs: Number of runs that have it.
        rho: Spearman's rank correlation of its score with the accuracy; NaN if it is constant or too few runs have it.
        low: Lower end of the 95 % interval of rho, by bootstrap over runs.
        high: Upper end.
        lost: Points of accuracy between the best run that has the measure and the one that the measure prefers.
    """

    measure: Measure
    runs: int
    rho: float = math.nan
    low: float = math.nan
    high: float = math.nan
    lost: float = math.nan


class Group(NamedTuple):
    """Runs that can be compared: of one dataset, held-out set, length and probe.

    Attributes:
        title: What they have in common.
        runs: Their results, which have an accuracy.
        predictions: What each measure says about them.
    """

    title: str
    runs: list[Result]
    predictions: list[Prediction]


def groups_of(results: Sequence[Result]) -> list[Group]:
    """All groups of `LEAST` runs or more, the largest first, without runs that diverged and those on the circle."""
    found: dict[str, list[Result]] = {}
    for result in results:
        probe = next((name for name in PROBES if "top1" in result.evaluation.get(name, {})), None)
        if probe is not None and result.diverged is None and result.config.dimensions is None:
            config = result.config
            title = f"{config.data_name}, {config.encoder}, {config.epochs} epochs, {probe} on {config.holdout} images"
            found.setdefault(title, []).append(result)
    groups = [Group(title, runs, predictions(runs)) for title, runs in found.items() if len(runs) >= LEAST]
    return sorted(groups, key=lambda group: -len(group.runs))


def predictions(runs: Sequence[Result]) -> list[Prediction]:
    """What each measure says about some runs."""
    return [_prediction(measure, runs) for measure in (*MEASURES, WITH_LABELS)]


def _prediction(measure: Measure, runs: Sequence[Result]) -> Prediction:
    pairs = [(value, accuracy_of(run)) for run in runs if math.isfinite(value := _value(measure, run))]
    if len(pairs) < LEAST:
        return Prediction(measure, len(pairs))
    scores, accuracies = [measure.score(value) for value, _ in pairs], [accuracy for _, accuracy in pairs]
    chosen = max(range(len(scores)), key=scores.__getitem__)
    return Prediction(measure, len(pairs), *spearman(scores, accuracies), max(accuracies) - accuracies[chosen])


def _value(measure: Measure, run: Result) -> float:
    place, _, name = measure.key.partition("/")
    last = run.history[-1] if run.history else {}
    return (last if place == "history" else run.evaluation.get(place, {})).get(name, math.nan)


def accuracy_of(run: Result) -> float:
    """Linear accuracy in per cent."""
    return next(run.evaluation[probe]["top1"] for probe in PROBES if "top1" in run.evaluation.get(probe, {}))


def spearman(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """Spearman's rank correlation, and the ends of its 95 % percentile interval by bootstrap over pairs."""
    import numpy as np
    from scipy.stats import rankdata

    def correlation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = (rankdata(part, axis=1) for part in (a, b))
        a, b = (part - part.mean(axis=1, keepdims=True) for part in (a, b))
        with np.errstate(invalid="ignore"):  # a resample of one run only
            return (a * b).sum(axis=1) / np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))

    pairs = np.array([x, y])
    drawn = np.random.default_rng(0).integers(0, len(x), (RESAMPLES, len(x)))
    resampled = correlation(pairs[0][drawn], pairs[1][drawn])
    whole = float(correlation(pairs[:1], pairs[1:])[0])
    if not np.isfinite(resampled).any():
        return whole, math.nan, math.nan
    low, high = np.nanquantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return whole, float(low), float(high)
