"""How well a mean is known: its 95 % t-interval."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple


def half_width(values: Sequence[float]) -> float:
    """Half the width of the 95 % t-interval of the mean of `values`; NaN for fewer than two.

    Example:
        >>> round(half_width([1.0, 2.0, 3.0]), 3)
        2.484
    """
    n, mean = len(values), fmean(values)
    if n < 2:
        return math.nan
    from scipy.stats import t

    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    return float(t.ppf(0.975, n - 1)) * spread / math.sqrt(n)


class Estimate(NamedTuple):
    """A mean over `n` values and the half-width of its 95 % t-interval, which is None for a single value."""

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
    """The mean of some values with its interval; None if there are none.

    Example:
        >>> print(estimate([1.0, 2.0, 3.0]))
        2.00 ± 2.48 (n = 3)
    """
    n = len(values)
    if n == 0:
        return None
    return Estimate(fmean(values), half_width(values) if n > 1 else None, n)
