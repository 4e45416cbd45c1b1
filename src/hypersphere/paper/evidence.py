"""Results by cell: values by seed, runs that diverged, stale results, and protocols."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hypersphere.config import Config
from hypersphere.paper.cells import AS_WRITTEN, METRICS, TUNED, Cell, Protocol
from hypersphere.runs.results import Result

CLASSES = {"digits": 10, "cifar10": 10, "cifar100": 100, "stl10": 10, "imagenet": 1000, "imagenette-160": 10}


@dataclass(frozen=True)
class Evidence:
    """Results by cell. A result counts if its hash equals that of the cell's present config."""

    results: Sequence[Result]

    @cached_property
    def _by_cell(self) -> dict[str, list[Result]]:
        found: dict[str, list[Result]] = {}
        for result in sorted(self.results, key=lambda result: result.config.seed):
            found.setdefault(result.cell, []).append(result)
        return found

    def of(self, cell: Cell, protocol: Protocol = AS_WRITTEN) -> dict[int, Result]:
        """Results of a cell, by seed."""
        if cell.obstacle is not None:
            return {}
        named = self._by_cell.get(cell.name, ())
        return {r.config.seed: r for r in named if r.hash == protocol.config(cell, r.config.seed).hash}

    def values(self, cell: Cell, metric: str, protocol: Protocol = AS_WRITTEN) -> dict[int, float]:
        """Values of a metric, by seed."""
        runs = self.of(cell, protocol).items()
        return {seed: value for seed, run in runs if (value := measured(run, metric)) is not None}

    def scores(self, cell: Cell, metric: str, protocol: Protocol = AS_WRITTEN) -> dict[int, float]:
        """As `values`, but a run that diverged counts as the worst value, if the metric has one."""
        lost = {seed: worst(metric, self.of(cell, protocol)[seed].config) for seed in self.diverged(cell, protocol)}
        worst_values = {seed: value for seed, value in lost.items() if value is not None}
        return dict(sorted({**self.values(cell, metric, protocol), **worst_values}.items()))

    def diverged(self, cell: Cell, protocol: Protocol = AS_WRITTEN) -> list[int]:
        """Seeds that diverged."""
        return [seed for seed, run in self.of(cell, protocol).items() if run.diverged is not None]

    def stale(self, cell: Cell) -> list[Result]:
        """Results of the cell that no protocol counts, since its config or a default has changed."""
        if cell.obstacle is not None:
            return []
        return [r for r in self._by_cell.get(cell.name, ()) if r.hash not in _hashes(cell, r)]

    def protocols(self, cells: Sequence[Cell]) -> list[Protocol]:
        """Protocols that compare all of the cells and have a result of one: first as written, then the longest."""
        lengths = sorted({result.config.epochs for result in self.results}, reverse=True)
        others = [Protocol(epochs, tuned) for epochs in (None, *lengths) for tuned in (False, True)[: 1 + bool(TUNED)]]
        runnable = [cell for cell in cells if cell.obstacle is None]
        published = {cell.config(0).epochs for cell in runnable}
        found = [p for p in others if any(self.of(cell, p) and p.changes(cell) for cell in runnable)]
        written = [AS_WRITTEN] * any(map(self.of, runnable))
        return [*written, *(p for p in found if p.fits(runnable) and p.epochs not in published)]

    def whole(self, cells: Sequence[Cell]) -> Protocol | None:
        """The first protocol by which all of the cells have run; None if there is none."""
        return next((p for p in self.protocols(cells) if all(self.of(cell, p) for cell in cells)), None)


def worst(metric: str, config: Config) -> float | None:
    """Value of a run that diverged: that of guessing, or of features in one point; None if the metric has no worst."""
    if metric in ("top-1", "top-5", "k-NN", "linear-cached"):
        return 100 * (5 if metric == "top-5" else 1) / CLASSES[config.data]
    return {"uniformity": 0.0, "effective rank": 1.0}.get(metric)


def measured(run: Result, metric: str) -> float | None:
    """Value of a metric in a result; None if it is missing or not finite.

    Args:
        run: The result.
        metric: A key of `METRICS`, "training time, %", the name of a measurement during training (its last value), or
            "mean " and such a name.
    """
    value = _measured(run, metric)
    return value if value is not None and math.isfinite(value) else None


def _measured(run: Result, metric: str) -> float | None:
    if metric == "training time, %":  # not comparable if the run shared its device
        comparable = run.seconds > 0 and "shared" not in run.about
        return 100 * math.log(run.seconds) if comparable else None  # differences are per cent
    if metric in METRICS:
        probe, number = METRICS[metric]
        return run.evaluation.get(probe, {}).get(number)
    if metric.startswith("mean "):
        values = [line[name] for line in run.history if (name := metric.removeprefix("mean ")) in line]
        return sum(values) / len(values) if values else None
    return run.history[-1].get(metric) if run.history else None


def _hashes(cell: Cell, result: Result) -> set[str]:
    """Hashes of the cell's present configs, at the length of the result."""
    config = result.config
    return {Protocol(config.epochs, tuned).config(cell, config.seed).hash for tuned in (False, True)}
