"""How well a mean is known."""

import math
from collections.abc import Sequence
from statistics import fmean


def half_width(values: Sequence[float]) -> float:
    """Of the 95 % t-interval of their mean; NaN of fewer than two."""
    n, mean = len(values), fmean(values)
    if n < 2:
        return math.nan
    from scipy.stats import t

    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    return float(t.ppf(0.975, n - 1)) * spread / math.sqrt(n)
