"""Effects with their errors: the variance of seeds, pooled over cells if possible, and critical values."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean
from typing import NamedTuple

ALPHA = 0.05
POWER = 0.8  # probability of finding the smallest detectable effect


class Spread(NamedTuple):
    """A variance over seeds and its degrees of freedom."""

    variance: float
    df: float


class Effect(NamedTuple):
    """A combination of means with its standard error.

    Attributes:
        mean: The combination.
        error: Its standard error; NaN if unknown.
        df: Degrees of freedom of the error.
        n: Number of seeds of each cell.
        spread: Source of the error: "pooled" over all cells of a protocol, "Welch" from the combination's own cells,
            or "" if a cell has a single seed, so that there is no error.
    """

    mean: float
    error: float
    df: float
    n: tuple[int, ...]
    spread: str = ""

    @property
    def half_width(self) -> float | None:
        """Half-width of its own 95 % interval; None without an error."""
        return self.critical(1) * self.error if self.spread else None

    def critical(self, claims: int, ratio: float | None = None) -> float:
        """Half-width of a simultaneous 95 % interval, in standard errors.

        Args:
            claims: Number of claims that the interval holds for at once.
            ratio: If all claims share a control, how many times the seeds it has (Dunnett); None for Bonferroni.
        """
        return bonferroni(claims, self.df) if ratio is None or claims == 1 else dunnett(claims, self.df, ratio)

    def __str__(self) -> str:
        half = "" if self.half_width is None else f" ± {self.half_width:.2f}"
        n = f"{min(self.n)}" if len({*self.n}) == 1 else f"{min(self.n)} to {max(self.n)}"
        return f"{self.mean:+z.2f}{half} (n = {n})"


def combine(values: Sequence[Sequence[float]], weights: Sequence[float], pool: Spread | None) -> Effect:
    """Combine the means of cells: Σ weight · mean.

    Args:
        values: Values of each cell, one per seed.
        weights: Weight of each cell.
        pool: Variance that all of these cells share. With few seeds no test finds all differences of variance, so
            the cells' own error (Welch's) is used if it is larger. Without a pool, it is used with its own degrees of
            freedom.

    Returns:
        The effect, with an error if each cell has two values or more.
    """
    mean = sum(w * fmean(of) for w, of in zip(weights, values, strict=True))
    n = tuple(map(len, values))
    if min(n) < 2:
        return Effect(mean, math.nan, math.nan, n)
    parts = [w**2 * variance(of) / len(of) for w, of in zip(weights, values, strict=True)]
    own = math.sqrt(sum(parts))
    if pool is not None:
        shared = math.sqrt(pool.variance * sum(w**2 / k for w, k in zip(weights, n, strict=True)))
        return Effect(mean, max(own, shared), pool.df, n, "pooled")
    if own == 0:  # all seeds agree to the last digit, which says nothing about their variance
        return Effect(mean, math.nan, math.nan, n)
    df = own**4 / sum(part**2 / (k - 1) for part, k in zip(parts, n, strict=True))  # Satterthwaite
    return Effect(mean, own, df, n, "Welch")


def pooled_spread(cells: Mapping[str, Sequence[float]]) -> tuple[Spread | None, set[str]]:
    """The variance that cells share, and the names of these cells.

    Cells with two seeds or more are pooled. While Bartlett's test rejects equal variances at 5 %, the cell with the
    largest variance is removed. Cells whose seeds agree to the last digit are not tested.
    """
    kept = {name: values for name, values in cells.items() if len(values) > 1}
    while _bartlett([values for values in kept.values() if variance(values) > 0]) < ALPHA:
        widest = max((variance(values), name) for name, values in kept.items())
        del kept[widest[1]]
    df = sum(len(values) - 1 for values in kept.values())
    within = sum(variance(values) * (len(values) - 1) for values in kept.values())
    return (Spread(within / df, df), {*kept}) if within > 0 else (None, set())


def _bartlett(groups: Sequence[Sequence[float]]) -> float:
    """p-value of equal variances: as scipy.stats.bartlett, which takes a hundred times as long for a few numbers."""
    if len(groups) < 2:
        return 1.0
    from scipy.special import chdtrc

    dfs, variances = [len(group) - 1 for group in groups], [variance(group) for group in groups]
    df = sum(dfs)
    common = sum(k * of for k, of in zip(dfs, variances, strict=True)) / df
    gap = df * math.log(common) - sum(k * math.log(of) for k, of in zip(dfs, variances, strict=True))
    correction = 1 + (sum(1 / k for k in dfs) - 1 / df) / (3 * (len(groups) - 1))
    return float(chdtrc(len(groups) - 1, gap / correction))


def variance(values: Sequence[float]) -> float:
    """Unbiased variance of a sample."""
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


@cache
def bonferroni(claims: int, df: float) -> float:
    """Critical value of the t distribution for several claims at once."""
    from scipy.stats import t

    return float(t.ppf(1 - ALPHA / (2 * claims), df))


@cache
def dunnett(claims: int, df: float, ratio: float) -> float:
    """Critical value c for k comparisons with one control (Dunnett, 1955): P(|T₁| ≤ c, …, |Tₖ| ≤ c) = 95 %.

    Tᵢ = (√(1 − b²) Zᵢ + b Z₀) / S with independent standard normal Z, S² = χ²(df)/df and b² = 1/(1 + ratio). The
    probability is integrated over Z₀ and S, and solved for c.

    Args:
        claims: Number of comparisons k.
        df: Degrees of freedom of the error.
        ratio: How many times the seeds of each other cell the control has.
    """
    import numpy as np
    from scipy.optimize import brentq
    from scipy.special import chdtri, ndtr

    b = math.sqrt(1 / (1 + ratio))
    z, of_z = np.polynomial.hermite_e.hermegauss(64)
    at, of_s = np.polynomial.legendre.leggauss(128)
    s = np.sqrt(chdtri(df, (1 - at) / 2) / df)[:, None]  # quantiles of its distribution

    def inside(c: float) -> float:
        high, low = ((sign * c * s - b * z) / math.sqrt(1 - b**2) for sign in (1, -1))
        held = (ndtr(high) - ndtr(low)) ** claims
        return float(of_s / 2 @ held @ of_z / math.sqrt(2 * math.pi))

    return float(brentq(lambda c: inside(c) - (1 - ALPHA), 0.5, 200.0, xtol=1e-6))


def detectable(effect: Effect, critical: float) -> float:
    """The true effect that would be found with 80 % probability, by the noncentral t distribution.

    For a claim with slack, this is the distance from its bound.
    """
    return _noncentrality(critical, effect.df) * effect.error


@cache
def _noncentrality(critical: float, df: float) -> float:
    from scipy.optimize import brentq
    from scipy.stats import nct

    return float(brentq(lambda shift: nct.sf(critical, df, shift) - POWER, 0.0, 4 * critical + 10, xtol=1e-6))
