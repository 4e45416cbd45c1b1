"""Differences between the rows of a sweep, against scipy."""

import numpy as np
import pytest
from scipy import stats

from hypersphere.cli.sweep import _print_results
from hypersphere.config import recipe
from hypersphere.runs.results import Result
from hypersphere.sweeps.differences import differences
from hypersphere.sweeps.grid import Point


def grid(*rows):
    """Points and results of a sweep over `lr` whose k-NN accuracies are given, one list of seeds for each value."""
    points, found = [], {}
    for n, accuracies in enumerate(rows):
        for seed, top1 in enumerate(accuracies):
            config = recipe("byol", "digits", lr=0.001 * (n + 1), seed=seed)
            point = Point({"lr": config.lr, "seed": seed}, config)
            points.append(point)
            if top1 is not None:
                evaluation = {"knn": {"top1": top1}, "sphere": {"uniformity": -1.0 - seed / 10}}
                found[point.name] = Result(point.cell, config, config.hash, evaluation, 1.0, {})
    return points, found


def test_two_rows_of_like_variance_have_students_interval():
    a, b = [90.0, 91.0, 92.5], [93.0, 94.0, 95.5]
    (row,) = differences(*grid(a, b))
    interval = stats.ttest_ind(b, a).confidence_interval()
    assert row.effects["knn, %"].spread == "pooled"
    assert row.effects["knn, %"].mean == pytest.approx(3.0)
    assert row.half_widths["knn, %"] == pytest.approx((interval.high - interval.low) / 2)
    assert row.values == {"lr": 0.002}


def test_rows_of_unlike_variance_have_welchs_interval():
    a, b = [90.0, 90.01, 90.02, 90.01], [80.0, 94.0, 99.5, 70.0]
    (row,) = differences(*grid(a, b))
    interval = stats.ttest_ind(b, a, equal_var=False).confidence_interval()
    assert row.effects["knn, %"].spread == "Welch"
    assert row.half_widths["knn, %"] == pytest.approx((interval.high - interval.low) / 2, rel=1e-3)


def test_several_rows_have_dunnetts_interval():
    rows = [[90.0 + shift, 91.0 + shift, 92.5 + shift] for shift in (0, 3, -1, 2)]  # all of one variance
    found = differences(*grid(*rows))
    wanted = stats.dunnett(*map(np.array, rows[1:]), control=np.array(rows[0]), random_state=0).confidence_interval()
    for row, low, high in zip(found, wanted.low, wanted.high, strict=True):
        assert row.half_widths["knn, %"] == pytest.approx((high - low) / 2, rel=0.02)  # theirs is by random numbers


def test_a_single_seed_has_no_interval_and_a_missing_row_no_difference():
    points, found = grid([90.0], [93.0], [None])
    first, second = differences(points, found)
    assert first.effects["knn, %"].mean == pytest.approx(3.0)
    assert first.half_widths["knn, %"] is None
    assert second.effects == {}


def test_the_command_prints_them(capsys):
    _print_results(*grid([90.0, 91.0, 92.5], [93.0, 94.0, 95.5]))
    shown = capsys.readouterr().out
    assert "minus the first row" in shown
    assert "+3.00 ± 2.85" in shown
    assert "two seeds give wide intervals" not in shown


def test_the_command_says_that_two_seeds_are_few(capsys):
    """The factor between intervals over two and five seeds of the same variance is that of Student's t."""
    _print_results(*grid([90.0, 91.0], [93.0, None]))
    shown = capsys.readouterr().out
    assert "two seeds give wide intervals: with five seeds they are about seven times narrower" in shown
    two, five = (stats.t.ppf(0.975, n - 1) / np.sqrt(n) for n in (2, 5))
    assert round(two / five) == 7
