"""Means with 95 % confidence intervals."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple


def half_width(values: Sequence[float]) -> float:
    """Half-width of the 95 % t-interval of a mean; NaN for fewer than two values."""
    if len(values) < 2:
        return math.nan
    from scipy.stats import sem, t

    return float(t.ppf(0.975, len(values) - 1) * sem(values))


class Estimate(NamedTuple):
    """A mean over seeds.

    Attributes:
        mean: The mean.
        half_width: Half-width of its 95 % t-interval; None for a single seed.
        n: Number of seeds.
    """

    mean: float
    half_width: float | None
    n: int

    def __str__(self) -> str:
        spread = "" if self.half_width is None else f" ± {self.half_width:.2f}"
        return f"{self.mean:z.2f}{spread} (n = {self.n})"


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean of the values with its interval; None without values.

    Example:
        >>> print(estimate([90.0, 91.0, 92.0]))
        91.00 ± 2.48 (n = 3)
    """
    if not values:
        return None
    return Estimate(fmean(values), half_width(values) if len(values) > 1 else None, len(values))
