"""How well a mean is known."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple


def half_width(values: Sequence[float]) -> float:
    """Of the 95 % t-interval of their mean; NaN of fewer than two."""
    n, mean = len(values), fmean(values)
    if n < 2:
        return math.nan
    from scipy.stats import t

    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    return float(t.ppf(0.975, n - 1)) * spread / math.sqrt(n)


class Estimate(NamedTuple):
    """A mean over seeds and the half-width of its 95 % t-interval (None of one seed)."""

    mean: float
    half_width: float | None
    n: int

    def __str__(self) -> str:
        spread = "" if self.half_width is None else f" ± {self.half_width:.2f}"
        return f"{self.mean:z.2f}{spread} (n = {self.n})"


def estimate(values: Sequence[float]) -> Estimate | None:
    n = len(values)
    if n == 0:
        return None
    return Estimate(fmean(values), half_width(values) if n > 1 else None, n)
