"""Figures: of which runs they are, and what they show."""

import dataclasses
import resource

import pytest

from hypersphere.errors import UserError
from hypersphere.paper.cells import Protocol
from hypersphere.paper.evidence import Evidence
from hypersphere.paper.figures import FIGURES
from hypersphere.paper.tables import BY_BATCH, BY_UPDATE, BYOL
from hypersphere.regularize import EnergyRegularizer
from hypersphere.report import plots
from hypersphere.report import results as results_file
from hypersphere.report.markdown import results_page
from hypersphere.report.plots import draw_figures
from hypersphere.report.results import write_page
from hypersphere.runs.build import build_method
from tests.paper.made import result


@pytest.fixture
def every():
    """Results of every cell that a figure shows, made up."""
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
    return list(made.values())


def test_every_kind_of_figure_draws_what_results_hold(every, tmp_path):
    """All files are there, and the page shows them."""
    evidence = Evidence(every)
    drawn = draw_figures(evidence, tmp_path)
    assert drawn.keys() == FIGURES.keys()
    for name, words in {"fig:layer_uniformity_mhe": "layer4", "fig:g2": "uniformity G2", "fig:batch": "128"}.items():
        assert words in drawn[name].read_text()
    page = results_page(evidence, figures={name: path.name for name, path in drawn.items()})
    assert "Not drawn yet" not in page
    assert "(fig-uni.svg)" in page


def test_a_run_that_diverged_is_told_and_not_drawn(every, tmp_path):
    def lost(run, seed):
        config = run.config.replace(seed=seed)
        return dataclasses.replace(
            run, config=config, hash=config.hash, evaluation={}, history=[], angles=None, diverged="the loss is nan"
        )

    some = draw_figures(Evidence([*every, *(lost(run, 1) for run in every)]), tmp_path)
    assert "(n = 1, 1 diverged)" in some["fig:g2"].read_text()
    none = draw_figures(Evidence([lost(run, 0) for run in every]), tmp_path)
    assert none.keys() == FIGURES.keys()
    for name in ("fig:g2", "fig:knn", "fig:layer_uniformity_mhe"):
        assert "(n = 0, 1 diverged)" in none[name].read_text()


def test_a_picture_is_written_whole_or_not_at_all(every, tmp_path):
    (drawn,) = draw_figures(Evidence(every), tmp_path, {"fig:knn": FIGURES["fig:knn"]}).values()
    drawn.write_text("as it was")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(UserError, match=r"could not write .*; the one before is untouched"):
            draw_figures(Evidence(every), tmp_path, {"fig:knn": FIGURES["fig:knn"]})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [(file, file.read_text()) for file in tmp_path.iterdir()] == [(drawn, "as it was")]


def test_seeds_watched_at_other_epochs_share_those_that_all_have(every, tmp_path):
    """One every 10 epochs, one every 15, one never."""
    cell = FIGURES["fig:knn"].panels[0][1]
    curves = [{10: 1.0, 20: 2.0, 30: 3.0}, {15: 50.0, 30: 5.0}, {}]
    histories = [[{"epoch": epoch, "knn": knn} for epoch, knn in curve.items()] for curve in curves]
    runs = [result(cell, seed, 90.0, history=history) for seed, history in enumerate(histories)]
    assert plots._mean(runs[:2], lambda line: line["knn"]) == ([30], [4.0])
    others = [run for run in every if run.cell != cell.name]
    figure = {"fig:knn": FIGURES["fig:knn"]}
    assert ">BYOL (n = 2)<" in draw_figures(Evidence([*others, *runs]), tmp_path, figure)["fig:knn"].read_text()


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
    shorter = [result(cell, 0, 90.0, epochs=100) for cell in cells]
    assert Evidence([*shorter, *runs]).whole(cells) == tuned
    assert Evidence(shorter).whole(cells) == Protocol(100)
    whole = Evidence([result(cell, 0, 90.0) for cell in cells] + runs)
    assert whole.whole(cells) == Protocol()


def test_panels_on_the_circle_that_are_missing_say_so(tmp_path):
    cell = FIGURES["fig:uni"].panels[2][1]
    evidence = Evidence([result(cell, 0, 90.0, epochs=100, angles=[1] * 720)])
    pictures = {name: path.read_text() for name, path in draw_figures(evidence, tmp_path).items()}
    assert {name: picture.count("not run yet") for name, picture in pictures.items()} == {"fig:uni": 6, "fig:pca": 7}
    page = results_page(evidence, figures={"fig:uni": "uni.svg"})
    assert (
        "Not run yet: circle-random, circle-simclr, circle-uni, circle-mhe-gq, circle-mhe, circle-mhe-hidden." in page
    )


def test_a_panel_on_the_circle_is_of_one_seed_and_says_the_mean_of_all(tmp_path):
    """Two encoders turned against each other would look more even than each is. A diverged one has no features."""
    figure = FIGURES["fig:uni"]
    cell, other = figure.panels[2][1], figure.panels[3][1]
    halves = [[1] * 360 + [0] * 360, [0] * 360 + [1] * 360]
    runs = [result(cell, seed, 50.0 + 20 * seed, epochs=100, angles=half) for seed, half in enumerate(halves)]
    pictures = [
        draw_figures(Evidence(found), tmp_path, {"fig:uni": figure})["fig:uni"].read_text()
        for found in (runs[:1], runs[::-1])
    ]
    assert pictures[0].replace("G2 −0.50", "G2 −0.60").replace("(n = 1)", "(n = 2)") == pictures[1]
    lost = result(other, 0, 0.0, epochs=100, diverged=3)
    assert ">diverged<" in draw_figures(Evidence([*runs, lost]), tmp_path)["fig:uni"].read_text()


def test_a_smaller_batch_is_compared_by_the_means_of_all_seeds():
    """Of 256 images there are two seeds, and one that diverged; of the second reading only 128 images."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    cells = dict(FIGURES["fig:batch"].panels)

    def runs_of(batch, rate, **by_seed):
        title = f"BYOL, {batch}, {rate}"
        return {title: [result(cells[title], int(seed[1:]), top) for seed, top in by_seed.items()]}

    runs = runs_of(1024, BY_UPDATE, s0=90.0, s1=92.0, s2=94.0) | runs_of(512, BY_UPDATE, s0=90.0)
    runs |= runs_of(256, BY_UPDATE, s1=91.0, s2=90.0) | runs_of(128, BY_BATCH, s5=50.0)
    small = f"BYOL, 256, {BY_UPDATE}"
    runs[small].append(result(cells[small], 0, 0.0, diverged="the loss is nan", evaluation={}))
    picture = plots._batch(pyplot, runs)
    published, (line,), (slow,) = (axis.lines for axis in picture.axes)
    pyplot.close(picture)
    assert dict(zip(*line.get_data(orig=True), strict=True)) == {"1024": 0.0, "512": -2.0, "256": -1.5}
    assert dict(zip(*slow.get_data(orig=True), strict=True)) == {"1024": 0.0, "128": -42.0}
    uniform = dict(zip(*published[1].get_data(orig=True), strict=True))
    assert published[1].get_label() == "BYOL + Uni"
    assert uniform["128"] == pytest.approx(82.42 - 91.48)
    nothing = plots._batch(pyplot, {})
    assert [text.get_text() for axis in nothing.axes for text in axis.texts] == ["not run yet"] * 2
    pyplot.close(nothing)


def test_a_figure_can_be_drawn_without_what_is_optional(every, tmp_path):
    optional = [cell.name for f in FIGURES.values() for title, cell in f.panels if title in f.optional]
    assert "byol-batch128-lr" in optional
    there = [run for run in every if run.cell not in optional]
    assert draw_figures(Evidence(there), tmp_path).keys() == FIGURES.keys()


def test_panels_on_the_circle_regularize_what_their_titles_say():
    """BYOL-MHE projector and predictor, as the appendix says. Of all layers, the two neurons of the output have least
    energy where they are opposite, which leaves a feature two directions."""
    heads = {"projector.2", "predictor.0", "predictor.2"}
    for title, cell in (*FIGURES["fig:uni"].panels, *FIGURES["fig:pca"].panels):
        config = cell.config(0)
        if not config.energy:
            continue
        method = build_method(config.replace(hidden=8, projection=4), channels=3)
        layers = set(EnergyRegularizer(method, where=config.energy_layers).layers)
        if "all layers" in title or "not at the output" in title:
            assert ("encoder.fc" in layers) == ("projector.0" in layers) == ("all layers" in title)
            assert layers >= {"encoder.features.0", "encoder.head.3", *heads}
        else:
            assert layers == {"projector.0", *heads}


def test_without_matplotlib_the_page_says_what_drawing_needs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results_file, "find_spec", lambda name: None)
    for cell in FIGURES["fig:g2"].cells:
        result(cell, 0, 90.0).write(tmp_path / "results")
    write_page(tmp_path / "results", tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "Not drawn yet: that needs `pip install" in page.split("## fig:g2")[1].split("## ")[0]
    assert "Not drawn yet: runs are missing." in page.split("## fig:knn")[1].split("## ")[0]
    assert "is written without figures" in capsys.readouterr().err
