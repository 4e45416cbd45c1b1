"""What the results say of a cell: values by seed, their mean and interval, what is missing, what is stale."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hypersphere.paper.cells import METRICS, Cell
from hypersphere.results import Result


class Estimate(NamedTuple):
    """A mean over seeds and the half-width of its 95 % t-interval (None of one seed)."""

    mean: float
    half_width: float | None
    n: int

    def __str__(self) -> str:
        spread = "" if self.half_width is None else f" ± {self.half_width:.2f}"
        return f"{self.mean:.2f}{spread} (n = {self.n})"


def estimate(values: Sequence[float]) -> Estimate | None:
    n = len(values)
    if n == 0:
        return None
    mean = sum(values) / n
    if n == 1:
        return Estimate(mean, None, 1)
    from scipy.stats import t

    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    return Estimate(mean, float(t.ppf(0.975, n - 1)) * spread / math.sqrt(n), n)


@dataclass(frozen=True)
class Evidence:
    """Results, looked up by cell. A result counts for a cell while its hash is that of the cell's config today."""

    results: Sequence[Result]

    def of(self, cell: Cell, epochs: int | None = None) -> dict[int, Result]:
        """By seed; `epochs`: of the shorter protocol of that length, else of the published one."""
        if cell.obstacle is not None:
            return {}
        wanted = {} if epochs is None else {"epochs": epochs}
        named = [result for result in self.results if result.cell == cell.name]
        return {r.config.seed: r for r in named if r.hash == cell.config(r.config.seed, **wanted).hash}

    def values(self, cell: Cell, metric: str, epochs: int | None = None) -> dict[int, float]:
        probe, number = METRICS[metric]
        runs = self.of(cell, epochs)
        return {seed: run.evaluation[probe][number] for seed, run in sorted(runs.items()) if probe in run.evaluation}

    def diverged(self, cell: Cell, epochs: int | None = None) -> list[int]:
        return sorted(seed for seed, run in self.of(cell, epochs).items() if run.diverged is not None)

    def stale(self, cell: Cell) -> list[Result]:
        """Results under the cell's name that are of no protocol of it: its config, or a default, has changed since."""
        if cell.obstacle is not None:
            return []
        return [
            r for r in self.results
            if r.cell == cell.name and r.hash != cell.config(r.config.seed, epochs=r.config.epochs).hash
        ]  # fmt: skip

    def other_lengths(self, cells: Sequence[Cell]) -> list[int]:
        """Epochs of the results that are not of the published length."""
        published = {cell.name: cell.config(0).epochs for cell in cells if cell.obstacle is None}
        found = {r.config.epochs for r in self.results if published.get(r.cell, r.config.epochs) != r.config.epochs}
        return sorted(found, reverse=True)
