"""A miniature of a table and of a figure on digits, from nothing to its page; what is told on the way."""

import dataclasses
import json
import math
import re
import shutil
import signal
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from hypersphere.cli import main
from hypersphere.errors import UserError
from hypersphere.paper import reproduce
from hypersphere.paper.cells import Cell, Protocol, Row, Table
from hypersphere.paper.evidence import Evidence
from hypersphere.paper.figures import Figure
from hypersphere.paper.tables import BYOL, TABLES
from hypersphere.probes import PROBES
from hypersphere.report.markdown import results_page
from hypersphere.report.plots import draw_figures
from hypersphere.report.results import write_page
from hypersphere.report.terminal import list_tables
from hypersphere.runs.results import read_results
from hypersphere.sweeps.jobs import Job, run_job, run_jobs
from tests.paper.made import HERE, PLAIN, SMALL, SPREAD, result

ROWS = (Row(("BYOL",), PLAIN, {"top-1": 90.0, "k-NN": 80.0}), Row(("BYOL + Uni",), SPREAD, {"top-1": 91.0}))

MINI = Table("tab:mini", "Digits", ("method",), (*ROWS, Row(("others",), None, {"top-1": 99.0})))


def test_a_table_is_run_interrupted_and_gone_on_with(tmp_path, quick, monkeypatch):
    results, runs, page = tmp_path / "results", tmp_path / "runs", tmp_path / "RESULTS.md"

    def left():
        return list(reproduce.missing_runs(MINI, Evidence(read_results(results)), seeds=(0, 1)))

    jobs = left()
    assert [(job.cell, job.config.seed) for job in jobs] == [
        ("mini-byol", 0), ("mini-byol-uni", 0), ("mini-byol", 1), ("mini-byol-uni", 1)
    ]  # fmt: skip
    write = partial(write_page, results, page)
    run = partial(run_jobs, results=results, runs=runs, how=HERE, after=write, progress=False)
    run(jobs[:1])
    assert len(left()) == 3

    from hypersphere.train import record

    write = record._write
    monkeypatch.setattr(record, "_write", lambda *a: (write(*a), signal.raise_signal(signal.SIGINT))[0])
    with pytest.raises(KeyboardInterrupt):
        run(left())
    monkeypatch.setattr(record, "_write", write)
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
    jobs = list(reproduce.missing_runs(figures["fig:mini"], Evidence([]), seeds=(0,)))
    run_jobs(jobs, tmp_path, tmp_path / "runs", HERE, progress=False)
    write_page(tmp_path, tmp_path / "RESULTS.md")
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


def test_a_run_that_diverges_is_a_result(tmp_path, quick):
    cell = Cell("wild", "byol", "digits", {**SMALL, "optimizer": "sgd", "lr": 1e30, "norm": "none"})
    found = run_job(Job("wild", "wild", cell.config(0), PROBES), tmp_path, progress=False)
    assert found.diverged is not None
    assert found.diverged.startswith("the loss is")
    found.write(tmp_path / "results")
    evidence = Evidence(read_results(tmp_path / "results"))
    table = Table("tab:wild", "", ("method",), (Row(("wild",), cell, {"top-1": 1.0}),))
    assert "diverged (n = 1)" in results_page(evidence, [table])
    assert list(reproduce.missing_runs(table, evidence, (0,))) == []


def test_a_run_that_began_on_a_shared_device_is_known_as_such(tmp_path, monkeypatch):
    job = Job("mini", "", PLAIN.config(0, epochs=1), ("knn",))
    monkeypatch.setenv("HYPERSPHERE_SHARED", "yes")
    run_job(job, tmp_path, progress=False)
    monkeypatch.delenv("HYPERSPHERE_SHARED")
    assert run_job(job, tmp_path, progress=False).about["shared"] == "yes"
    assert "shared" not in run_job(job, tmp_path / "alone", progress=False).about


def test_the_list_and_its_mistakes(tmp_path, capsys, monkeypatch):
    where = ["--results", str(tmp_path), "--device", "cpu"]
    assert main(["reproduce", "tab:bn", "--dry-run", "--seeds", "1", "--cells", "no-bn", *where]) == 0
    assert "no-bn, 300 epochs, seed 0: " in capsys.readouterr().out
    words = ["--dry-run", "--seeds", "2", "--first-seed", "3", "--cells", "no-bn"]
    assert main(["reproduce", "tab:bn", *words, *where]) == 0
    told = capsys.readouterr().out
    assert main(["reproduce", "fig:uni", "--dry-run", "--seeds", "1", "--cells", "circle-random", *where]) == 0
    assert "circle-random, untrained, seed 0: 0 s" in capsys.readouterr().out
    assert [seed for seed in range(9) if f"no-bn, 300 epochs, seed {seed}: " in told] == [3, 4]
    for words, told in (
        (["tab:bm"], "did you mean 'tab:bn'"),
        (["tab:bn", "--cells", "no-bm"], "did you mean 'no-bn'"),
        (["tab:bn", "--seeds", "0"], "--seeds"),
        (["tab:bn", "--first-seed", "-1"], "--first-seed"),
        (["tab:batch", "--tuned"], "not all of tab:batch is tuned: leave out --tuned"),
        (["--cells", "no-bn"], "--cells needs the table: hypersphere reproduce NAME --cells …\n"),
    ):
        assert main(["reproduce", *words, *where]) == 2
        assert told in capsys.readouterr().err
    monkeypatch.setattr("hypersphere.paper.cost.seconds", lambda *_: 7200.0)
    monkeypatch.setenv("COLUMNS", "140")
    assert main(["reproduce", "tab:bn", "--dry-run", *where]) == 0
    assert "3 of 3: 6.0 h" in capsys.readouterr().out
    assert main(["reproduce", *where]) == 0
    told = capsys.readouterr().out
    assert re.search(r"tab:bn +BatchNorm and MHE of all networks +0 of 12 +24\.0 h", told)
    assert re.search(r"fig:knn +k-NN accuracy during training +0 of 9 +18\.0 h", told)
    assert f"No results in {tmp_path}: " in told
    (tmp_path / "byol.json").write_text("{")
    assert main(["reproduce", *where]) == 2
    assert "byol.json is damaged" in capsys.readouterr().err


def test_what_was_no_number_comes_back_as_none(tmp_path):
    """Of a dead encoder, say: others are averaged all the same."""
    lost = dataclasses.replace(result(BYOL, 0, 90.0), history=[{"epoch": 1, "spread": 0.0, "effective_rank": math.nan}])
    assert "NaN" not in lost.write(tmp_path).read_text()
    (line,) = read_results(tmp_path)[0].history
    assert (line["epoch"], line["spread"]) == (1, 0.0)
    assert math.isnan(line["effective_rank"])


def test_a_damaged_result_is_told(tmp_path):
    result(BYOL, 0, 90.0).write(tmp_path)
    assert read_results(tmp_path)[0] == result(BYOL, 0, 90.0)
    file = next(tmp_path.iterdir())
    file.write_text(file.read_text().replace('"cell"', '"call"'))
    with pytest.raises(UserError, match="damaged"):
        read_results(tmp_path)


def test_a_narrow_list_has_names_and_numbers_whole(capsys, monkeypatch):
    """They are there to be copied and compared. What is written to a file is not bound to 80 columns."""
    table, evidence = TABLES["tab:imgnet1000"], Evidence([])
    monkeypatch.setattr("hypersphere.paper.cost.seconds", lambda *_: 1e10)
    monkeypatch.setenv("COLUMNS", "80")
    list_tables(evidence, range(3), Protocol(), "cpu", [table])
    lines = capsys.readouterr().out.split("\n\n")[0].splitlines()
    for row in table.rows:
        shown = [line for line in lines if row.cell is None or f" {row.cell.name} " in line]
        assert any(all(f" {value:.2f} " in line for value in row.published.values()) for line in shown)
    assert max(map(len, lines)) == 80
    monkeypatch.delenv("COLUMNS")
    list_tables(evidence, range(3), Protocol(), "cpu", [table])
    assert len(max(capsys.readouterr().out.splitlines(), key=len)) > 120


def test_results_and_figures_are_reproduced_byte_for_byte(tmp_path):
    """Drawn by another version of matplotlib, figures have the same texts: titles, legends, ticks and numbers."""
    here = Path(__file__).parents[2]
    shutil.copytree(here / "results", tmp_path / "results", ignore=shutil.ignore_patterns("figures"))
    write_page(tmp_path / "results", tmp_path / "RESULTS.md")
    again = "hypersphere reproduce methods --cells methods-byol --seeds 1"  # trains nothing
    same = (tmp_path / "RESULTS.md").read_bytes() == (here / "RESULTS.md").read_bytes()
    assert same, f"RESULTS.md is not what the tables and results/ make: write it again with '{again}'"
    figures = sorted(path.name for path in (here / "results/figures").iterdir())
    assert [path.name for path in sorted((tmp_path / "results/figures").iterdir())] == figures
    for name in figures:
        kept, drawn = ((folder / "results/figures" / name).read_text(encoding="utf-8") for folder in (here, tmp_path))
        if f"Matplotlib v{matplotlib.__version__}," in kept:
            assert drawn == kept, name
        else:
            assert re.findall("<text[^>]*>([^<]*)<", drawn) == re.findall("<text[^>]*>([^<]*)<", kept), name
