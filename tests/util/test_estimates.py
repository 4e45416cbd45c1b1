"""Intervals, compared with scipy's and with least squares."""

import numpy as np
import pytest
from scipy import stats

from hypersphere.paper.claims import NETWORKS, factorial, interactions
from hypersphere.paper.tables import TABLES
from hypersphere.util import estimates
from hypersphere.util.estimates import Effect, Spread, bonferroni, combine, detectable, dunnett, pooled_spread
from hypersphere.util.statistics import estimate


def test_an_estimate_is_the_t_interval():
    values = [90.1, 90.9, 90.4]
    found = estimate(values)
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx((low, high))
    assert estimate([1.0]).half_width is None
    assert estimate([]) is None


def test_without_a_pool_a_difference_is_welchs():
    one, other = [90.1, 90.9, 90.4, 91.0], [89.0, 89.2]
    found = combine([one, other], [1, -1], None)
    wanted = stats.ttest_ind(one, other, equal_var=False)
    interval = wanted.confidence_interval(0.95)
    assert found.spread == "Welch"
    assert found.df == pytest.approx(wanted.df)
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx(
        (interval.low, interval.high)
    )
    assert combine([one, [89.0]], [1, -1], None).half_width is None


def test_a_pooled_difference_is_students():
    one, other = [90.1, 90.9, 90.4, 91.0], [89.0, 89.6, 88.9]
    pool, shared_by = pooled_spread({"one": one, "other": other})
    assert shared_by == {"one", "other"}
    interval = stats.ttest_ind(one, other).confidence_interval(0.95)
    found = combine([one, other], [1, -1], pool)
    assert found.spread == "pooled"
    assert found.mean - found.half_width == pytest.approx(interval.low)


def test_cells_that_vary_more_leave_the_pool():
    rng = np.random.default_rng(0)
    cells = {f"cell {n}": rng.normal(90, 0.2, 3).tolist() for n in range(8)}
    wide, single = {"wide": [10.0, 90.0, 91.0]}, {"single": [90.0]}
    pool, shared_by = pooled_spread({**cells, **wide, **single})
    assert shared_by == cells.keys()
    assert pool.df == 16
    assert pool.variance == pytest.approx(np.mean([np.var(values, ddof=1) for values in cells.values()]))
    assert pooled_spread(single) == (None, set())


def test_equal_variances_are_tested_by_bartlett():
    rng = np.random.default_rng(0)
    for sizes in ((2, 2), (3, 3, 3), (2, 5, 3, 4)):
        groups = [rng.normal(90, rng.uniform(0.1, 1), n).tolist() for n in sizes]
        assert estimates._bartlett(groups) == pytest.approx(stats.bartlett(*groups).pvalue)


def test_seeds_that_agree_by_chance_are_seeds_like_others_but_tell_nothing_alone():
    same = {"same": [90.0, 90.0]}
    pool, shared_by = pooled_spread({**same, "one": [90.0, 90.4], "other": [91.0, 91.2]})
    assert shared_by == {"same", "one", "other"}
    assert pool == Spread(pytest.approx((0.08 + 0.02) / 3), 3)
    assert pooled_spread(same) == (None, set())
    assert combine([[90.0, 90.0], [91.0, 91.0]], [1, -1], None).half_width is None


def test_the_error_is_not_below_that_of_the_cells_themselves():
    """With few seeds a test does not see that these vary more than the pool says."""
    one, other = [90.0, 91.0, 92.0], [89.0, 90.0, 91.0]
    pool = Spread(0.01, 20)
    own = combine([one, other], [1, -1], None)
    found = combine([one, other], [1, -1], pool)
    assert (found.error, found.df) == (pytest.approx(own.error), 20)
    assert combine([one, other], [1, -1], Spread(9.0, 20)).error == pytest.approx(3 * (2 / 3) ** 0.5)


@pytest.mark.parametrize(("claims", "n", "control"), [(8, 3, 3), (3, 5, 5), (5, 3, 6), (2, 2, 4)])
def test_critical_values_for_one_control_are_dunnetts(claims, n, control):
    rng = np.random.default_rng(1)
    samples = [rng.normal(size=n) for _ in range(claims)]
    found = stats.dunnett(*samples, control=rng.normal(size=control), random_state=0)
    interval = found.confidence_interval(0.95)
    error = found._std * np.sqrt(1 / n + 1 / control)
    wanted = (interval.high - interval.low)[0] / 2 / error
    df = claims * (n - 1) + control - 1
    assert dunnett(claims, df, control / n) == pytest.approx(wanted, rel=5e-3)
    assert bonferroni(1, df) < dunnett(claims, df, control / n) < bonferroni(claims, df)


@pytest.mark.parametrize("df", [1, 2, 20])
def test_an_effect_that_could_have_been_seen_is_found_in_four_cases_of_five(df):
    effect = Effect(0.0, 0.3, df, (3, 3), "pooled")
    smallest = detectable(effect, effect.critical(1))
    rng = np.random.default_rng(0)
    drawn = rng.normal(smallest, effect.error, 40_000)
    spread = np.sqrt(rng.chisquare(df, 40_000) / df)
    assert np.mean(drawn > effect.critical(1) * effect.error * spread) == pytest.approx(0.8, abs=0.01)


def test_the_factorial_is_least_squares():
    """Of the eight cells with factors coded ± ½, main effects are coefficients, interactions those of products."""
    rng = np.random.default_rng(0)
    table = TABLES["tab:sections"]
    rows = [row for row in table.rows if row.labels[0] == "MHE (a2)"]
    codes = np.array([[0.5 if mark == "✓" else -0.5 for mark in row.labels[1:]] for row in rows])
    values = {row.cell: rng.normal(90, 1, 3).tolist() for row in rows}
    f, g, q = np.repeat(codes, 3, axis=0).T
    design = np.stack([np.ones(24), f, g, q, 2 * f * g, 2 * f * q, 2 * g * q, 4 * f * g * q], axis=1)
    wanted, residual, *_ = np.linalg.lstsq(design, np.concatenate([values[row.cell] for row in rows]), rcond=None)
    claims = [*(factorial(table, network) for network in NETWORKS), *(c.terms for c in interactions(table))]
    pool = Spread(residual[0] / 16, 16)
    covariance = np.linalg.inv(design.T @ design) * pool.variance
    for place, terms in enumerate(claims, 1):
        effect = combine([values[term.cell] for term in terms], [term.weight for term in terms], pool)
        assert effect.mean == pytest.approx(wanted[place])
        assert effect.error == pytest.approx(np.sqrt(covariance[place, place]))
