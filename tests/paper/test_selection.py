"""Which measures predict accuracy, against scipy and by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from hypersphere.cli import main
from hypersphere.config import recipe
from hypersphere.paper.selection import groups_of, spearman
from hypersphere.runs.results import Result


def result(seed, top1, probe="linear", diverged=None, history=(), options=None, **sphere):
    config = recipe("byol", "cifar10", seed=seed, **(options or {}))
    evaluation = {} if diverged else {probe: {"top1": top1}, "knn": {"top1": top1 - 5}, "sphere": sphere}
    return Result("byol", config, config.hash, evaluation, 1.0, {}, diverged=diverged, history=[*history])


def predictions_of(results):
    (group,) = groups_of(results)
    return {prediction.measure.title: prediction for prediction in group.predictions}


def test_spearman_is_scipys_and_its_interval_a_bootstrap():
    draw = np.random.default_rng(1)
    x = draw.normal(size=20).round(1)  # with ties
    y = x + draw.normal(size=20)
    rho, low, high = spearman(x, y)
    assert rho == pytest.approx(stats.spearmanr(x, y).statistic)
    found = []
    for _ in range(400):
        rows = draw.integers(0, 20, 20)
        found.append(stats.spearmanr(x[rows], y[rows]).statistic)
    assert (low, high) == pytest.approx(tuple(np.quantile(found, [0.025, 0.975])), abs=0.1)


def test_measures_have_their_directions():
    """Accuracies rise by 1; alpha-ReQ is best at 1, which the third run has."""
    alphas = [0.1, 0.5, 1.0, 1.6, 1.9]
    results = [
        result(n, 80.0 + n, uniformity=-n / 10, alignment=n / 10, rankme=n + 1.0, alpha_req=alpha)
        for n, alpha in enumerate(alphas)
    ]
    found = predictions_of(results)
    assert (found["uniformity (lower)"].rho, found["uniformity (lower)"].lost) == (pytest.approx(1), 0)
    assert (found["alignment (lower)"].rho, found["alignment (lower)"].lost) == (pytest.approx(-1), 4)
    assert (found["RankMe (higher)"].rho, found["RankMe (higher)"].lost) == (pytest.approx(1), 0)
    assert found["alpha-ReQ (near 1)"].lost == 2
    assert found["k-NN accuracy, with labels"].rho == pytest.approx(1)
    assert found["LiDAR (higher)"].runs == 0


def test_a_run_without_a_measure_does_not_count_for_it():
    results = [result(n, 80.0 + n, uniformity=-n / 10) for n in range(5)] + [result(9, 99.0)]
    found = predictions_of(results)["uniformity (lower)"]
    assert (found.runs, found.lost) == (5, 0)  # of the runs that have it
    constant = predictions_of([result(n, 80.0 + n, uniformity=-1.0) for n in range(5)])["uniformity (lower)"]
    assert math.isnan(constant.rho)


def test_the_last_epoch_counts_of_the_history():
    results = [result(n, 80.0 + n, history=[{"alignment": n}, {"alignment": 5 - n}]) for n in range(5)]
    assert predictions_of(results)["alignment in training (lower)"].rho == pytest.approx(1)


def test_groups_are_of_one_protocol():
    results = [result(n, 80.0 + n, uniformity=-1.0 * n) for n in range(6)]
    results += [result(n, 90.0 + n, options={"epochs": 50}) for n in range(4)]
    results += [result(n, 90.0 + n, "linear-cached") for n in range(3)]  # too few
    results += [result(7, 0.0, diverged="loss"), result(8, 50.0, options={"dimensions": 2})]
    assert [len(group.runs) for group in groups_of(results)] == [6, 4]


def test_the_command_says_what_is_missing(tmp_path, capsys):
    for n in range(6):
        result(n, 80.0 + n, uniformity=-1.0 * n, **({"rankme": 1.0 * n} if n else {})).write(tmp_path)
    assert main(["reproduce", "selection", "--results", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "6 runs, accuracy 80.0 to 85.0 %" in " ".join(shown.split())
    assert "No run has Wasserstein uniformity, " in shown
    assert "Some runs lack RankMe (1 of 6)." in shown
    assert main(["reproduce", "selection", "--results", str(tmp_path / "none")]) == 0
    assert "no 4 runs of one dataset and protocol" in capsys.readouterr().out
