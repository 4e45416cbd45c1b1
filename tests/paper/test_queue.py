"""What is run in a given time: which runs, in which order, and that it ends in time. Processes are killed for real."""

import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import time

import pytest

from hypersphere.cli import main
from hypersphere.errors import UserError
from hypersphere.paper import reproduce
from hypersphere.paper.cells import AS_WRITTEN, Cell, Protocol
from hypersphere.paper.claims import CLAIMS
from hypersphere.paper.cost import FEATURE_EPOCHS, PROBE_EPOCHS, START, Prices, seconds
from hypersphere.paper.evidence import Evidence
from hypersphere.paper.queue import STANDARD, Queue
from hypersphere.paper.reproduce import within
from hypersphere.paper.tables import BYOL, PREDICTOR_A2, TABLES, UNI
from hypersphere.paper.verdict import Judge
from hypersphere.util.console import parse_duration
from tests.paper.made import result

SHORT = Protocol(epochs=100)


def queue(results=(), protocols=STANDARD, seeds=3):
    return Queue(Judge(Evidence([*results])), protocols, seeds)


def test_what_tells_most_per_second_comes_first_and_all_of_it_fits():
    """Equally dear, BYOL is first, which most claims compare with. What is ten times dearer comes later."""
    plan = queue().fitting(lambda cell, protocol: 60.0, 600.0, 1)
    assert plan[0].cell == BYOL
    assert len(plan) == 10
    assert len({(run.cell.name, run.protocol, run.seed) for run in plan}) == 10
    dear = queue().fitting(lambda cell, protocol: 600.0 if cell == BYOL else 60.0, 1200.0, 1)
    assert dear[0].cell != BYOL
    assert sum(run.seconds for run in dear) <= 1200


def test_each_worker_has_the_whole_time():
    for workers, runs in ((1, 10), (2, 20), (3, 30)):
        assert len(queue().fitting(lambda *_: 60.0, 600.0, workers)) == runs
    assert queue().fitting(lambda *_: 60.0, 59.0, 1) == []


def test_three_that_share_a_device_take_three_times_as_long_except_for_their_start():
    config = AS_WRITTEN.config(BYOL, 0)
    alone, shared = (Prices(800.0, sharing=n).whole(config, ("linear",)) for n in (1, 3))
    assert shared - START == pytest.approx(3 * (alone - START))


def test_the_choice_itself_takes_time(monkeypatch):
    """Counting the operations of all cells takes seconds, after which a run that just fitted does not."""
    clock = itertools.count(0.0, 10.0)
    monkeypatch.setattr(reproduce.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(Prices, "whole", lambda *_: 100.0)
    fits = [len(within(seconds, Evidence([]), Prices(800.0), 1)[0]) for seconds in (114.0, 116.0)]
    assert fits == [0, 1]


def test_what_is_begun_is_brought_to_a_second_seed():
    """One seed of each decides nothing: with time for three runs, one claim can be judged."""
    there = [result(cell, 0, 80.0, epochs=100) for cell in TABLES["tab:sections"].cells]
    plan = queue(there).fitting(lambda cell, protocol: protocol.config(cell, 0).epochs, 300.0, 1)
    assert {(run.cell.name, run.protocol, run.seed) for run in plan} >= {("byol", SHORT, 1), ("mhe-gq", SHORT, 1)}


def test_a_second_seed_tells_more_than_a_fourth_and_decided_claims_ask_for_nothing():
    claim = next(c for c in CLAIMS if c.sentence == "Uniformity loss improves linear accuracy.")
    alone = [result(BYOL, seed, 90.0 + seed / 10) for seed in range(3)] + [result(UNI, 0, 91.0)]
    scores = queue(alone, [AS_WRITTEN]).scores()
    assert scores[UNI, AS_WRITTEN][1] == claim.sentence
    more = [*alone, result(UNI, 1, 91.1), result(UNI, 2, 91.2)]
    assert Judge(Evidence(more))(claim).word == "reproduced"
    assert claim.sentence not in {sentence for _, sentence in queue(more, [AS_WRITTEN]).scores().values()}
    few, many = (
        queue([*(result(BYOL, s, 90.0) for s in range(n)), result(PREDICTOR_A2, 0, 90.0)], [AS_WRITTEN]).scores()
        for n in (1, 3)
    )
    assert few[BYOL, AS_WRITTEN][0] > many[BYOL, AS_WRITTEN][0]


def test_a_cell_has_so_many_seeds_and_a_control_twice_as_many():
    plan = queue(protocols=[SHORT], seeds=2).fitting(lambda *_: 1.0, 1e6, 1)
    counts = {run.cell.name: sum(other.cell == run.cell for other in plan) for run in plan if run.protocol == SHORT}
    assert counts["byol"] == 4
    assert counts["mhe-q"] == counts["mechanism-centred"] == 2
    asked = {run.cell.name for run in plan}
    assert asked >= {cell.name for cell in TABLES["tab:sections"].cells}
    assert {run.protocol for run in plan} == {SHORT}  # and nothing else


def test_trials_and_comparisons_of_methods_have_one_seed_each():
    def price(cell, protocol):
        return 1.0 if cell.name.startswith(("methods-", "trial-")) else 1e9

    plan = queue().fitting(price, 1000.0, 1)
    names = [run.cell.name for run in plan]
    assert len(names) == len({*names}) > 30
    assert "methods-simclr-mhe" in names
    assert "trial-mhe-q-lr9" in names


def test_what_has_run_is_not_asked_for_again():
    first = queue().fitting(lambda *_: 60.0, 600.0, 1)
    done = [
        result(run.cell, run.seed, 90.0, config=config, hash=config.hash)
        for run in first
        for config in [run.protocol.config(run.cell, run.seed)]
    ]
    second = queue(done).fitting(lambda *_: 60.0, 600.0, 1)
    assert not {(r.cell.name, r.protocol, r.seed) for r in first} & {(r.cell.name, r.protocol, r.seed) for r in second}


def test_costs_are_learnt_from_runs_of_the_same_device():
    """Counted at 800 TFLOP/s; here runs took twice as long, those with small batches four times, shared by three."""
    count = seconds(BYOL.config(0), 800)
    small = next(row.cell for row in TABLES["tab:batch"].rows if row.cell.name == "byol-batch128")
    about = {"device": "here"}
    runs = [
        result(BYOL, 0, 90.0, seconds=2 * count, about=about),
        result(BYOL, 1, 90.0, seconds=99 * count, about={"device": "elsewhere"}),
        result(small, 0, 90.0, seconds=12 * count, about={**about, "shared": "3"}),
    ]
    prices = Prices.from_results(runs, "here", 800)
    assert prices.training(BYOL.config(0)) == pytest.approx(2 * count)
    assert prices.training(small.config(0)) == pytest.approx(4 * count)
    other = next(row.cell for row in TABLES["tab:batch"].rows if row.cell.name == "byol-batch512").config(0)
    assert prices.training(other) == pytest.approx(2 * count)  # of the same encoder
    assert Prices(800).training(other) == pytest.approx(count)
    whole = prices.whole(BYOL.config(0), ("knn", "linear"))
    assert whole == pytest.approx(START + 2 * count * (1 + (PROBE_EPOCHS + FEATURE_EPOCHS) / 300))
    untrained = prices.whole(BYOL.config(0), ("knn",), trained=False)
    assert untrained == pytest.approx(START + 2 * count * FEATURE_EPOCHS / 300)
    older = Prices.from_results([dataclasses.replace(runs[2], about={**about, "shared": "yes"})], "here", 800)
    assert older.training(small.config(0)) == pytest.approx(4 * count)  # by three, as it was then


def test_durations():
    known = {"90s": 90, "25m": 1500, "25 min": 1500, "1.5h": 5400, "1h 30m": 5400, "2d": 172800}
    assert {text: parse_duration(text) for text in known} == known
    for wrong in ("25", "m", "1h 30", "-5m", "five minutes", ""):
        with pytest.raises(UserError, match="is not a duration: write it as 90s, 25m or 1h30m"):
            parse_duration(wrong)


SCRIPT = """
import sys
from hypersphere.paper import catalogue, queue
from hypersphere.paper.cells import Row, Table
from hypersphere.paper.claim import Claim, difference
from tests.paper.test_queue import CELLS
one, other = CELLS
queue.CLAIMS = (Claim("One is better.", "k-NN", difference(one, other)),)
queue.QUESTIONS, queue._comparisons, queue._trials = (), tuple, tuple
import hypersphere.report.results
hypersphere.report.results.write_page = lambda results, page: None  # which takes seconds
from hypersphere.cli import main
sys.exit(main(sys.argv[1:]))
"""
LONG = {"batch": 256, "hidden": 64, "projection": 16, "knn_every": 0, "save_every": 5, "device": "cpu"}
CELLS = tuple(
    Cell(f"mini-{method}", method, "digits", LONG, probes=("knn", "linear-cached")) for method in ("byol", "byol-uni")
)


def test_a_budget_is_spent_killed_and_spent_again_without_repeating_anything(tmp_path):
    results = tmp_path / "results"
    words = ["reproduce", "--budget", "3h", "--epochs", "2", "--seeds", "1", "--workers", "1", "--device", "cpu"]
    words += ["--results", str(results), "--runs", str(tmp_path / "runs"), "--page", str(tmp_path / "page.md")]
    path = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])

    def command():
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *words], stdout=subprocess.PIPE, text=True, env=environment
        )

    first = command()
    end = time.monotonic() + 120
    while not list(results.glob("*.json")) and time.monotonic() < end:
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    planned = first.communicate()[0]
    assert "mini-byol, 2 epochs, seed 0: " in planned
    assert "(One is better)" in planned
    assert "2 runs: about " in planned
    (done,) = results.glob("*.json")
    made = done.stat().st_mtime_ns
    out = command().communicate(timeout=300)[0]
    assert len([*results.glob("*.json")]) == 2
    assert done.stat().st_mtime_ns == made  # what was finished was not made again
    assert "1 run: about " in out
    assert "1 run: results in " in out
    assert "stopped after" in out


def test_mistakes_about_a_budget_are_one_line(tmp_path, capsys, monkeypatch):
    where = ["--results", str(tmp_path), "--device", "cpu", "--dry-run"]
    for words, told in (
        (["--budget", "25"], "'25' is not a duration"),
        (
            ["--budget", "5m", "--workers", "0"],
            "--budget needs worker processes, which it can stop: leave",
        ),
        (["--budget", "5m", "--workers", "-1"], "--workers must be at least 0, got -1"),
        (["--budget", "0m"], "--budget must be longer than 20 s, got 0m"),
        (["--budget", "5m", "--cells", "byol"], "--cells needs the table: hypersphere reproduce NAME --cells …\n"),
    ):
        assert main(["reproduce", *words, *where]) == 2
        assert told in capsys.readouterr().err
    assert main(["reproduce", "fig:uni", "--budget", "31s", "--seeds", "1", *where]) == 0
    assert "no missing run fits into 31 s" in capsys.readouterr().out
    monkeypatch.setattr(Prices, "whole", lambda self, config, probes, trained: 30.0 if not trained else 3600.0)
    assert main(["reproduce", "fig:uni", "--budget", "1m", "--seeds", "1", *where]) == 0
    assert capsys.readouterr().out.startswith("circle-random, untrained, seed 0: 30 s\n1 run: about 30 s of 60 s")
