"""A miniature of a table on digits, from nothing to its page; and the rule of the claims."""

import dataclasses
import json
import shutil
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from hypersphere import reproduce
from hypersphere.build import build_method
from hypersphere.cli import main
from hypersphere.config import Config, recipe
from hypersphere.errors import UserError
from hypersphere.fanout import FanOut
from hypersphere.jobs import Job, run_job, run_jobs
from hypersphere.machine import provenance
from hypersphere.methods import METHODS
from hypersphere.paper import claims, cost, verdict
from hypersphere.paper.cells import TUNED, Cell, Protocol, Row, Table
from hypersphere.paper.comparison import COMPARISON
from hypersphere.paper.figures import FIGURES, Figure
from hypersphere.paper.state import Evidence, estimate
from hypersphere.paper.tables import ALL, BYOL, PREDICTOR_A2, TABLES, UNI
from hypersphere.paper.tuning import TRIALS
from hypersphere.probes import PROBES
from hypersphere.regularize import EnergyRegularizer
from hypersphere.report.markdown import results_page
from hypersphere.report.plots import draw_figures
from hypersphere.results import Result, read_results
from hypersphere.run import Run

SMALL = {"hidden": 32, "projection": 8, "batch": 256, "epochs": 2, "knn_every": 0, "device": "cpu"}
PLAIN, SPREAD = (Cell(f"mini-{method}", method, "digits", SMALL) for method in ("byol", "byol-uni"))
ROWS = (Row(("BYOL",), PLAIN, {"top-1": 90.0, "k-NN": 80.0}), Row(("BYOL + Uni",), SPREAD, {"top-1": 91.0}))
MINI = Table("tab:mini", "Digits", ("method",), (*ROWS, Row(("others",), None, {"top-1": 99.0})))
HERE = FanOut(workers=0)  # in this process


@pytest.fixture
def quick(monkeypatch):
    """The paper's probe takes long: here it is the one on stored features."""
    evaluate = Run.evaluate

    def shorter(run, probes, **options):
        found = evaluate(run, ("knn", "linear-cached"), **options)
        return {**found, "linear": found["linear-cached"]}

    monkeypatch.setattr(Run, "evaluate", shorter)


def result(cell, seed, top1, epochs=300, **changes):
    config = cell.config(seed, epochs=epochs)
    found = {"linear": {"top1": top1}, "sphere": {"uniformity": -top1 / 100}}
    return dataclasses.replace(Result(cell.name, config, config.hash, found, 1.0, {}), **changes)


def test_a_table_is_run_interrupted_and_gone_on_with(tmp_path, quick, monkeypatch):
    results, runs, page = tmp_path / "results", tmp_path / "runs", tmp_path / "RESULTS.md"

    def left():
        return list(reproduce.missing(MINI, Evidence(read_results(results)), seeds=(0, 1)))

    jobs = left()
    assert [(job.cell, job.config.seed) for job in jobs] == [
        ("mini-byol", 0), ("mini-byol-uni", 0), ("mini-byol", 1), ("mini-byol-uni", 1)
    ]  # fmt: skip
    write_page = partial(reproduce.write_page, results, page)
    run = partial(run_jobs, results=results, runs=runs, how=HERE, after=write_page, progress=False)
    run(jobs[:1])
    assert len(left()) == 3

    from hypersphere.train import loop

    write = loop._write
    monkeypatch.setattr(loop, "_write", lambda *a: (write(*a), signal.raise_signal(signal.SIGINT))[0])
    with pytest.raises(KeyboardInterrupt):
        run(left())
    monkeypatch.setattr(loop, "_write", write)
    assert len(left()) == 3
    unbroken = run_job(left()[0], tmp_path / "elsewhere", progress=False)
    run(left())
    assert left() == []
    evidence = Evidence(read_results(results))
    assert evidence.of(SPREAD)[0].evaluation == unbroken.evaluation
    shown = page.read_text()
    assert "90.00" not in shown  # the page is of the paper's tables
    shown = results_page(evidence, [MINI])
    mean = np.mean(list(evidence.values(PLAIN, "top-1").values()))
    assert f"| BYOL | 90.00 | {mean:.2f} ±" in shown
    assert "| others | 99.00 | – |" in shown
    kept = json.loads(next(results.glob("mini-byol-2-seed0-*.json")).read_text())
    assert kept["hash"] == PLAIN.config(0).hash
    assert kept["about"]["device"] == "cpu"
    assert "root" not in kept["config"]


def test_a_figure_is_trained_for_and_drawn(tmp_path, quick):
    """Features on the circle, before and after learning; the same runs' curves."""
    options = {**SMALL, "dimensions": 2, "knn_every": 1}
    before = Cell("mini-circle-random", "byol", "digits", options, trained=False, probes=("knn",))
    after = Cell("mini-circle", "byol-mhe", "digits", options)
    figures = {
        "fig:mini": Figure("fig:mini", "", "circle", (("random", before), ("BYOL-MHE", after))),
        "fig:curve": Figure("fig:curve", "", "curve", (("BYOL-MHE", after),)),
        "fig:dynamics": Figure("fig:dynamics", "", "dynamics", (("BYOL-MHE", after),)),
        "fig:lacks": Figure("fig:lacks", "", "curve", (("BYOL", PLAIN),)),
    }
    jobs = list(reproduce.missing(figures["fig:mini"], Evidence([]), seeds=(0,)))
    run_jobs(jobs, tmp_path, tmp_path / "runs", HERE, progress=False)
    reproduce.write_page(tmp_path, tmp_path / "RESULTS.md")
    evidence = Evidence(read_results(tmp_path))
    assert sum(evidence.of(before)[0].angles) == sum(evidence.of(after)[0].angles) == 360  # test images
    assert [line["epoch"] for line in evidence.of(after)[0].history] == [1, 2]
    drawn = draw_figures(evidence, tmp_path / "figures", figures)
    assert drawn.keys() == {"fig:mini", "fig:curve", "fig:dynamics"}
    picture = drawn["fig:mini"].read_text()
    assert all(word in picture for word in ("random", "BYOL-MHE", "density", "angle"))
    assert "k-NN accuracy" in drawn["fig:curve"].read_text()
    assert draw_figures(evidence, tmp_path / "again", figures)["fig:mini"].read_text() == picture
    assert "Not drawn yet" in (tmp_path / "RESULTS.md").read_text()


def test_every_kind_of_figure_draws_what_results_hold(tmp_path):
    """From results of every cell, made up: all files are there, and the page shows them."""
    made = {}
    for figure in FIGURES.values():
        for cell in figure.cells:
            stages = {f"energy/layer{n}": float(n) for n in range(1, 5)}
            line = {
                "epoch": 10,
                "knn": 80.0,
                "uniformity_of_features": -2.0,
                "energy_of_weights/encoder": 9.0,
                **stages,
            }
            one = result(cell, 0, 90.0, epochs=cell.config(0).epochs, history=[line, {**line, "epoch": 20}])
            on_circle = cell.config(0).dimensions == 2
            made[cell.name] = dataclasses.replace(one, angles=[1] * 720) if on_circle else one
    evidence = Evidence(list(made.values()))
    drawn = draw_figures(evidence, tmp_path)
    assert drawn.keys() == FIGURES.keys()
    for name, words in {"fig:layer_uniformity_mhe": "layer4", "fig:g2": "uniformity G2", "fig:batch": "128"}.items():
        assert words in drawn[name].read_text()
    page = results_page(evidence, figures={name: path.name for name, path in drawn.items()})
    assert "Not drawn yet" not in page
    assert "(fig-uni.svg)" in page


def test_a_run_that_diverges_is_a_result(tmp_path, quick):
    cell = Cell("wild", "byol", "digits", {**SMALL, "optimizer": "sgd", "lr": 1e30, "norm": "none"})
    found = run_job(Job("wild", "wild", cell.config(0), PROBES), tmp_path, progress=False)
    assert found.diverged is not None
    assert found.diverged.startswith("the loss is")
    found.write(tmp_path / "results")
    evidence = Evidence(read_results(tmp_path / "results"))
    table = Table("tab:wild", "", ("method",), (Row(("wild",), cell, {"top-1": 1.0}),))
    assert "diverged (n = 1)" in results_page(evidence, [table])
    assert list(reproduce.missing(table, evidence, (0,))) == []


def test_a_result_whose_cell_has_changed_is_stale_and_not_used(tmp_path):
    old = result(BYOL, 0, 90.0)
    changed = dataclasses.replace(BYOL, options={"tau": 0.9})
    evidence = Evidence([old])
    assert evidence.values(BYOL, "top-1") == {0: 90.0}
    assert evidence.values(changed, "top-1") == {}
    assert evidence.stale(changed) == [old]
    assert evidence.stale(BYOL) == []
    other_version = dataclasses.replace(old, hash="0" * 12)
    assert Evidence([other_version]).values(BYOL, "top-1") == {}
    assert Evidence([other_version]).stale(BYOL) == [other_version]
    assert "## Stale" not in results_page(evidence)
    table = Table("tab:own", "", ("method",), (Row(("BYOL",), changed, {"top-1": 1.0}),))
    page = results_page(evidence, [table])
    assert "| BYOL | 1.00 | stale |" in page
    assert "| byol | 0 | tau 0.99 | 90.00 |" in page.split("## Stale")[1]


def test_a_shorter_protocol_is_kept_apart():
    evidence = Evidence([result(BYOL, 0, 90.0), result(BYOL, 0, 80.0, epochs=100)])
    assert evidence.values(BYOL, "top-1") == {0: 90.0}
    assert evidence.values(BYOL, "top-1", Protocol(epochs=100)) == {0: 80.0}
    assert evidence.stale(BYOL) == []
    page = results_page(evidence)
    assert "top-1, ours as written, 100 epochs" in page
    assert "90.00 (n = 1) | 80.00 (n = 1)" in page


def test_tuned_runs_are_a_column_of_their_own(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("hypersphere.paper.cells.TUNED", {})
    assert main(["reproduce", "tab:bn", "--tuned", "--results", str(tmp_path)]) == 2
    assert "nothing has been tuned yet: leave --tuned out" in capsys.readouterr().err
    for module in ("cells", "state"):
        monkeypatch.setattr(f"hypersphere.paper.{module}.TUNED", {"lr": 2.0})
    tuned = Protocol(tuned=True)
    config = tuned.config(BYOL, 0)
    assert config == BYOL.config(0).replace(lr=2.0)
    assert tuned.config(TABLES["tab:cifar"].rows[0].cell, 0).lr == 1.0  # of another encoder
    evidence = Evidence([result(BYOL, 0, 90.0), result(BYOL, 0, 92.0, config=config, hash=config.hash)])
    assert (evidence.values(BYOL, "top-1"), evidence.values(BYOL, "top-1", tuned)) == ({0: 90.0}, {0: 92.0})
    assert evidence.stale(BYOL) == []
    page = results_page(evidence)
    assert "| 90.74 | 90.00 (n = 1) | 92.00 (n = 1) |" in page
    assert "tuned" not in page.split("## tab:cifar")[1].split("## tab:bn")[0]  # where nothing is
    assert "On the circle" not in page.split("### Tuned")[1]


def test_a_figure_is_of_the_protocol_by_which_all_of_it_has_run(tmp_path):
    cells, tuned = FIGURES["fig:knn"].cells, Protocol(tuned=True)
    runs = [
        result(cell, 0, 90.0, config=config, hash=config.hash, history=[{"epoch": 1, "knn": 70.0}])
        for cell in cells
        for config in [tuned.config(cell, 0)]
    ]
    evidence = Evidence([result(BYOL, 0, 90.0), *runs])
    assert Evidence(evidence.results[:-1]).whole(cells) is None
    assert evidence.whole(cells) == tuned
    drawn = draw_figures(evidence, tmp_path)
    assert drawn.keys() == {"fig:knn"}
    page = results_page(evidence, figures={"fig:knn": "knn.svg"})
    assert "of CIFAR-10 where the paper shows STL-10. Runs: tuned." in page.split("## fig:knn")[1].split("##")[0]
    whole = Evidence([result(cell, 0, 90.0) for cell in cells] + runs)
    assert whole.whole(cells) == Protocol()


def test_panels_on_the_circle_that_are_missing_say_so(tmp_path):
    cell = FIGURES["fig:uni"].panels[2][1]
    evidence = Evidence([result(cell, 0, 90.0, epochs=100, angles=[1] * 720)])
    pictures = {name: path.read_text() for name, path in draw_figures(evidence, tmp_path).items()}
    assert {name: picture.count("not run yet") for name, picture in pictures.items()} == {"fig:uni": 5, "fig:pca": 5}
    page = results_page(evidence, figures={"fig:uni": "uni.svg"})
    assert "Not run yet: circle-random, circle-simclr, circle-uni, circle-mhe-hidden, circle-mhe." in page


def test_two_neurons_of_the_output_are_regularized_only_where_the_figure_says_so():
    """Their energy is least where they are opposite, which leaves a feature two directions."""
    for title, cell in (*FIGURES["fig:uni"].panels, *FIGURES["fig:pca"].panels):
        config = cell.config(0)
        if config.energy:
            method = build_method(config.replace(hidden=8, projection=4), channels=3)
            layers = {name for name, _ in EnergyRegularizer(method, where=config.energy_layers)._layers}
            assert ("encoder.fc" in layers) == ("projector.0" in layers) == ("output too" in title)
            assert layers >= {"encoder.features.0", "encoder.head.3", "projector.2", "predictor.0", "predictor.2"}


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
    told = [line.split(" | ")[-1] for line in page.split("### As written")[1].split("##")[0].splitlines()[4:]]
    counted = {word: sum(verdict.startswith(word) for verdict in told) for word in ("undecided", "not tested")}
    assert f"Of {len(claims.CLAIMS)}: 0 reproduced, 0 not reproduced, {counted['undecided']} undecided, " in page
    assert f"{counted['not tested']} not tested." in page
    assert ", ".join(f"{name} {value}" for name, value in TUNED.items()) in page


def test_claims_are_right_in_the_papers_tables():
    """By the published numbers themselves, each effect is on the claimed side of its bound."""
    assert all(c.direction * (c.published - c.bound) > 0 for c in claims.CLAIMS if c.published is not None)
    assert len({c.sentence for c in claims.CLAIMS}) == len(claims.CLAIMS)


def test_what_a_claim_compares_can_be_run():
    there = {cell for name in (*TABLES, "claims", *FIGURES) for cell in reproduce.named(name).cells}
    assert {cell for claim in claims.CLAIMS for cell in claim.cells} <= there
    assert [job.cell for job in reproduce.missing(reproduce.named("claims"), Evidence([]), (0,))] == ["simclr"]


def test_what_compares_batches_or_is_of_others_is_not_tuned():
    tuned = Protocol(tuned=True)
    for name in ("tab:batch", "fig:batch", "tab:cifar", "methods", "tuning", "claims", "fig:uni"):
        with pytest.raises(UserError, match=f"not all of {name} is tuned"):
            list(reproduce.missing(reproduce.named(name), Evidence([]), (0,), protocol=tuned))
    for name in ("tab:sections", "tab:bn", "tab:mhe", "tab:weight", "fig:knn"):
        assert all(map(tuned.changes, reproduce.named(name).cells))
    config = tuned.config(BYOL, 0)
    evidence = Evidence([result(BYOL, 0, 92.0, config=config, hash=config.hash)])
    page = results_page(evidence)
    assert "92.00" in page.split("## tab:mhe")[1].split("## tab:batch")[0]
    assert "92.00" not in page.split("## tab:batch")[1].split("## fig:uni")[0]
    assert evidence.whole(FIGURES["fig:batch"].cells) is None
    short = Protocol(50, tuned=True)
    assert short.changes(BYOL)
    assert not short.changes(claims.SIMCLR)


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


def test_a_run_that_began_on_a_shared_device_is_known_as_such(tmp_path, monkeypatch):
    job = Job("mini", "", PLAIN.config(0, epochs=1), ("knn",))
    monkeypatch.setenv("HYPERSPHERE_SHARED", "yes")
    run_job(job, tmp_path, progress=False)
    monkeypatch.delenv("HYPERSPHERE_SHARED")
    assert run_job(job, tmp_path, progress=False).about["shared"] == "yes"
    assert "shared" not in run_job(job, tmp_path / "alone", progress=False).about


def test_trials_never_see_the_test_set():
    assert {row.cell.config(0).holdout for row in (*TRIALS.rows, *COMPARISON.rows)} == {"validation"}
    assert {row.cell.config(0).method for row in COMPARISON.rows} == METHODS.keys()
    assert {(row.cell.config(0).epochs, row.cell.config(0).batch) for row in COMPARISON.rows} == {(50, 512)}
    assert sum(bool(row.cell.config(0).energy) for row in COMPARISON.rows) == len(METHODS)
    assert len({row.cell.config(0).hash for row in COMPARISON.rows}) == 3 * len(METHODS)
    assert len({row.cell.config(0).hash for row in TRIALS.rows}) == len(TRIALS.rows)
    cell = TRIALS.rows[1].cell
    made = result(cell, 0, 70.0, epochs=50, evaluation={"linear-cached": {"top1": 71.06}, "knn": {"top1": 59.0}})
    assert "| crop_min 0.2 | 50 | 71.06 (n = 1) | 59.00 (n = 1) |" in results_page(Evidence([made]))


def test_cells_of_several_tables_are_one_and_names_tell_cells_apart():
    by_name, by_hash = {}, {}
    for table in TABLES.values():
        for cell in table.cells:
            assert by_name.setdefault(cell.name, cell).options == cell.options
            if cell.obstacle is None:
                assert by_hash.setdefault(cell.config(0).hash, cell.name) == cell.name
    assert TABLES["tab:bn"].rows[3].cell is TABLES["tab:sections"].rows[7].cell
    assert TABLES["tab:bn"].rows[3].cell.options["energy_layers"] == ALL
    assert PREDICTOR_A2 in TABLES["tab:mhe"].cells
    assert PREDICTOR_A2 in TABLES["tab:batch"].cells


def test_published_numbers_that_the_paper_repeats_agree():
    seen = {}
    for name in ("tab:bn", "tab:sections", "tab:weight", "tab:mhe", "tab:batch"):
        for row in TABLES[name].rows:
            assert seen.setdefault(row.cell.name, row.published["top-1"]) == row.published["top-1"]


def test_costs_are_counted():
    byol = cost.seconds(BYOL.config(0), tflops=800)
    assert 300 < byol < 600
    assert cost.seconds(BYOL.config(0, epochs=100), 800) == pytest.approx(byol / 3)
    assert cost.seconds(BYOL.config(0), 400) == pytest.approx(2 * byol)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_counted_without_computing(method):
    assert cost.seconds(recipe(method, "digits", hidden=16, projection=8, epochs=1), tflops=1) > 0


def test_the_list_and_its_mistakes(tmp_path, capsys):
    where = ["--results", str(tmp_path), "--device", "cpu"]
    assert main(["reproduce", "tab:bn", "--dry-run", "--seeds", "1", "--cells", "no-bn", *where]) == 0
    assert "no-bn, 300 epochs, seed 0: " in capsys.readouterr().out
    words = ["--dry-run", "--seeds", "2", "--first-seed", "3", "--cells", "no-bn"]
    assert main(["reproduce", "tab:bn", *words, *where]) == 0
    told = capsys.readouterr().out
    assert main(["reproduce", "fig:uni", "--dry-run", "--seeds", "1", "--cells", "circle-random", *where]) == 0
    assert "circle-random, 100 epochs, seed 0: 0 s" in capsys.readouterr().out
    assert [seed for seed in range(9) if f"no-bn, 300 epochs, seed {seed}: " in told] == [3, 4]
    for words, told in (
        (["tab:bm"], "did you mean 'tab:bn'"),
        (["tab:bn", "--cells", "no-bm"], "did you mean 'no-bn'"),
        (["tab:bn", "--seeds", "0"], "--seeds"),
        (["tab:bn", "--first-seed", "-1"], "--first-seed"),
        (["tab:batch", "--tuned"], "not all of tab:batch is tuned: leave --tuned out"),
    ):
        assert main(["reproduce", *words, *where]) == 2
        assert told in capsys.readouterr().err
    (tmp_path / "byol.json").write_text("{")
    assert main(["reproduce", *where]) == 2
    assert "byol.json is damaged" in capsys.readouterr().err


def test_a_damaged_result_is_told(tmp_path):
    result(BYOL, 0, 90.0).write(tmp_path)
    assert read_results(tmp_path)[0] == result(BYOL, 0, 90.0)
    file = next(tmp_path.iterdir())
    file.write_text(file.read_text().replace('"cell"', '"call"'))
    with pytest.raises(UserError, match="damaged"):
        read_results(tmp_path)


def test_configs_are_of_the_test_set_with_the_papers_settings():
    assert BYOL.config(2) == Config(holdout="test", seed=2)
    small = TABLES["tab:batch"].rows[3].cell.config(0)
    assert (small.batch, small.micro_batch) == (1024, 128)


def test_the_page_in_this_checkout_is_of_its_results(tmp_path):
    here = Path(__file__).parents[1]
    shutil.copytree(here / "results", tmp_path / "results")
    reproduce.write_page(tmp_path / "results", tmp_path / "RESULTS.md")
    assert (here / "RESULTS.md").read_text(encoding="utf-8") == (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
