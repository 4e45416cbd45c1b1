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
    half_width: float | None = None
    n: int = 1

    def __str__(self) -> str:
        return f"{self.format('z.2f', '.2f')} (n = {self.n})"

    def format(self, mean: str, half_width: str) -> str:
        """`mean ± half-width` with these format specifications; the mean alone if there is no interval.

        Example:
            >>> Estimate(0.5, 0.125).format(".4g", ".2g")
            '0.5 ± 0.12'
        """
        number = format(self.mean, mean)
        return number if self.half_width is None else f"{number} ± {self.half_width:{half_width}}"


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean of the values with its interval; None without values.

    Example:
        >>> print(estimate([90.0, 91.0, 92.0]))
        91.00 ± 2.48 (n = 3)
    """
    if not values:
        return None
    return Estimate(fmean(values), half_width(values) if len(values) > 1 else None, len(values))
