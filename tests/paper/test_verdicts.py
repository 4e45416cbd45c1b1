"""The claims, and the rule of their verdicts."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from hypersphere import reproduce
from hypersphere.machine import provenance
from hypersphere.paper import claims, verdict
from hypersphere.paper.cells import TUNED, Protocol
from hypersphere.paper.figures import FIGURES
from hypersphere.paper.state import Evidence, estimate
from hypersphere.paper.tables import BYOL, PREDICTOR_A2, TABLES, UNI
from hypersphere.report.markdown import results_page
from tests.paper.made import result


def test_an_estimate_is_the_t_interval():
    values = [90.1, 90.9, 90.4]
    found = estimate(values)
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx((low, high))
    assert estimate([1.0]).half_width is None
    assert estimate([]) is None


@pytest.mark.parametrize(
    ("ours", "word"),
    [
        ([91.0, 91.1, 91.2], "reproduced"),  # + 1.1 ± 0.2
        ([90.0, 90.0, 90.05], "not reproduced"),  # excludes + 0.74
        ([89.0, 91.0, 91.0], "undecided"),
        ([91.0], "undecided"),
        ([], "not tested"),
    ],
)
def test_the_verdict_follows_the_rule(ours, word):
    claim = next(c for c in claims.CLAIMS if c.sentence == "Uniformity loss improves linear accuracy.")
    assert claim.published == pytest.approx(0.74)
    base = [result(BYOL, seed, 90.0) for seed in range(3)]
    evidence = Evidence(base + [result(UNI, seed, value) for seed, value in enumerate(ours)])
    assert verdict.judge(claim, evidence).word == word


def test_pairs_are_of_the_same_seed():
    claim = verdict.Claim("", "top-1", UNI, BYOL, None)
    results = [result(BYOL, s, v) for s, v in ((0, 80.0), (1, 90.0))] + [
        result(UNI, s, v) for s, v in ((1, 91.0), (2, 99.0))
    ]
    assert verdict.judge(claim, Evidence(results)).effect == (pytest.approx(1.0), None, 1)
    downwards = verdict.Claim("", "uniformity", UNI, BYOL, None, direction=-1)
    results = [result(BYOL, s, 80.0 + s) for s in range(3)] + [result(UNI, s, 90.0 + 1.1 * s) for s in range(3)]
    assert verdict.judge(downwards, Evidence(results)).word == "reproduced"


def test_a_claim_that_something_hardly_matters_has_slack():
    claim = verdict.Claim("", "top-1", UNI, BYOL, None, slack=0.5)
    base = [result(BYOL, seed, 90.0) for seed in range(3)]
    for behind, spread, word in ((0.3, 0.01, "reproduced"), (0.5, 0.1, "undecided"), (0.7, 0.01, "not reproduced")):
        ours = [result(UNI, seed, 90.0 - behind + spread * (seed - 1)) for seed in range(3)]
        assert verdict.judge(claim, Evidence(base + ours)).word == word
        mirrored = [result(UNI, seed, 90.0 + behind - spread * (seed - 1)) for seed in range(3)]
        assert verdict.judge(claim._replace(direction=-1), Evidence(base + mirrored)).word == word
    assert claim._replace(direction=-1).bound == 0.5
    ahead = Evidence(base + [result(UNI, seed, 90.0 + gain) for seed, gain in enumerate((0.4, 0.1, -0.2))])
    assert verdict.judge(claim._replace(published=0.92), ahead).word == "undecided"  # 0.10 ± 0.75 is not behind


def test_a_difference_may_be_compared_with_another():
    claim = verdict.Claim("", "top-1", UNI, BYOL, None, beyond=(PREDICTOR_A2, claims.SIMCLR))
    accuracies = {UNI: 80.0, BYOL: 90.0, PREDICTOR_A2: 85.0, claims.SIMCLR: 88.0}
    evidence = Evidence([result(cell, 0, value) for cell, value in accuracies.items()])
    assert verdict.judge(claim, evidence).effect.mean == pytest.approx(-7.0)
    assert claim.test == "top-1: byol-uni − byol − (mhe-q − simclr) > 0"
    assert verdict.judge(claim, Evidence(evidence.results[:3])).word == "not tested"
    loses = [c for c in claims.CLAIMS if c.beyond]
    assert [c.published for c in loses] == [pytest.approx(-3.32), pytest.approx(-0.14)]


def test_seeds_that_diverged_are_counted():
    lost = result(UNI, 1, 0.0, evaluation={}, diverged="the loss is nan")
    evidence = Evidence([*(result(BYOL, seed, 90.0) for seed in range(2)), result(UNI, 0, 91.0), lost])
    found = verdict.judge(verdict.Claim("", "top-1", UNI, BYOL, None), evidence)
    assert (found.effect.n, found.diverged) == (1, 1)
    page = results_page(evidence)
    assert "undecided, 1 diverged" in page
    tested, rest = page.split("### As written")[1].split("## Neighbours")[0].split("<details>")
    tested, rest = (sum(line.startswith("| ") for line in part.splitlines()) - 2 for part in (tested, rest))
    assert f"of {len(claims.CLAIMS)} claims {tested} undecided, {rest} not tested." in page
    assert tested + rest == len(claims.CLAIMS)
    assert ", ".join(f"{name} {value}" for name, value in TUNED.items()) in page


def test_a_claim_whose_runs_all_diverged_has_been_tested():
    lost = result(UNI, 0, 0.0, evaluation={}, diverged="the loss is nan")
    page = results_page(Evidence([result(BYOL, 0, 90.0), lost, result(PREDICTOR_A2, 0, 91.0)]))
    assert "| Uniformity loss improves linear accuracy. | top-1: byol-uni − byol > 0 | +0.74 |  | diverged |" in page
    assert ", 2 diverged, " in page.split("## tab:")[0]  # of accuracy, and of uniformity
    assert "BYOL + Uni diverged (n = 1)" in page.split("## fig:knn")[1].split("## ")[0]


def test_a_loss_of_the_batch_is_judged_with_a_word_on_the_batch():
    """By the paper's own table, uniformity loss gains at 1024 images at once, and loses at 256."""
    runs = []
    for cell, seed in itertools.product((BYOL, UNI, PREDICTOR_A2), range(3)):
        config = Protocol(tuned=True).config(cell, seed)
        runs.append(result(cell, seed, 91.0 + seed / 10, config=config, hash=config.hash))
    in_short, rest = results_page(Evidence(runs)).split("## tab:imgnet1000")
    assert (
        "at 256 images at once (see Claims): Uniformity loss improves linear accuracy: top-1 +0.00 ± 0.00" in in_short
    )
    assert "images at once (see Claims): MHE" not in in_short
    assert "As written: of 73 claims 73 not tested. No claim has more than one seed.\n\nTuned: of " in in_short
    assert "+0.74 from BYOL at 1024 and -0.66 at 256" in rest.split("### Tuned")[1]
    assert "our interval excludes the latter" in rest.split("### Tuned")[1]  # 0.00 ± 0.00
    assert "from BYOL at" not in rest.split("### Tuned")[0]
    assert "Without BatchNorm" not in rest.split("### Tuned")[1].split("## ")[0]  # which has not run


def test_time_and_history_are_metrics():
    lower = [{"epoch": 1, "energy/layer1": 9.0}, {"epoch": 2, "energy/layer1": 2.0}]
    evidence = Evidence([result(BYOL, 0, 90.0, seconds=100.0), result(UNI, 0, 90.0, seconds=103.0, history=lower)])
    assert evidence.values(UNI, "energy/layer1") == {0: 2.0}  # of the last epoch
    assert evidence.values(BYOL, "energy/layer1") == {}
    assert evidence.values(UNI, "mean energy/layer1") == {0: 5.5}
    assert evidence.values(BYOL, "mean energy/layer1") == {}
    time = verdict.Claim("", "training time, %", UNI, BYOL, None)
    assert verdict.judge(time, evidence).effect.mean == pytest.approx(3.0, abs=0.1)
    other = dataclasses.replace(evidence.results[1], about={"commit": "another"})
    assert verdict.judge(time, Evidence([evidence.results[0], other])).word == "not tested"


def test_times_of_a_shared_device_are_not_compared(monkeypatch):
    monkeypatch.setenv("HYPERSPHERE_SHARED", "yes")
    about = provenance(torch.device("cpu"))
    evidence = Evidence([result(BYOL, 0, 90.0), result(BYOL, 1, 91.0, about=about)])
    assert evidence.values(BYOL, "training time, %").keys() == {0}
    assert evidence.values(BYOL, "top-1").keys() == {0, 1}
    monkeypatch.delenv("HYPERSPHERE_SHARED")
    assert "shared" not in provenance(torch.device("cpu"))


def test_claims_are_right_in_the_papers_tables():
    """By the published numbers themselves, each effect is on the claimed side of its bound."""
    assert all(c.direction * (c.published - c.bound) > 0 for c in claims.CLAIMS if c.published is not None)
    assert len({c.sentence for c in claims.CLAIMS}) == len(claims.CLAIMS)


def test_what_a_claim_compares_can_be_run():
    there = {cell for name in (*TABLES, "claims", *FIGURES) for cell in reproduce.named(name).cells}
    assert {cell for claim in claims.CLAIMS for cell in claim.cells} <= there
    assert [job.cell for job in reproduce.missing(reproduce.named("claims"), Evidence([]), (0,))] == ["simclr"]
