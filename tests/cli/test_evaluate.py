"""`hypersphere evaluate`: cheap probes first, each kept when it ends, beside chance and an untrained encoder."""

import json

import pytest
import torch

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.cli.evaluate import split_known
from hypersphere.data import load_data
from hypersphere.evaluate import knn
from hypersphere.runs.run import evaluate_on, random_encoder
from tests.networks import SMALL_ENCODER

SMALL = {"encoder": SMALL_ENCODER, "hidden": 32, "projection": 8, "device": "cpu", "knn_every": 0, "progress": False}


@pytest.fixture
def run(tmp_path):
    return hs.pretrain("byol", "digits", epochs=1, out=tmp_path / "run", **SMALL)


def kept(run):
    return json.loads((run.path / "evaluation.json").read_text())["validation"]


def test_finished_probes_survive_an_interrupt_and_are_not_repeated(run, monkeypatch, capsys):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    words = ["evaluate", str(run.path), "--probes", "linear", "few-shot", "knn", "--device", "cpu"]
    with monkeypatch.context() as patch:
        patch.setattr("hypersphere.evaluate.suite.linear", interrupted)
        assert main(words) == 130
    told = capsys.readouterr().err
    assert told.index("1-shot: ") < told.index("20-NN: ")
    assert {"1-shot", "5-shot", "knn", "sphere"} <= kept(run).keys()
    assert "linear" not in kept(run)
    with monkeypatch.context() as patch:
        patch.setattr("hypersphere.evaluate.suite.knn", interrupted)  # not called again
        patch.setattr("hypersphere.evaluate.suite.linear", lambda *a, **o: hs.evaluate.Accuracy(12.5, 60.0))
        assert main(words) == 0
        shown = capsys.readouterr()
        assert "measured before: 1-shot, 5-shot, knn (--again repeats them)" in shown.err
        assert main([*words, "--again"]) == 130
    for text in ("12.50", f"{kept(run)['knn']['top1']:.2f}", "random %", "chance"):
        assert text in shown.out
    assert kept(run)["linear"]["top1"] == 12.5


def test_beside_each_accuracy_are_chance_and_an_untrained_encoder(run):
    found = run.measure(("knn",), baseline=True)
    _, held_out = load_data("digits")
    assert found["labels"] == {"classes": 10, "chance": 100 * int(held_out.labels.bincount().max()) / len(held_out)}
    untrained = evaluate_on(random_encoder(run.config), run.config, ("knn",), "validation")  # with all statistics
    assert found["random/knn"]["top1"] == pytest.approx(untrained["knn"]["top1"], abs=2)
    assert found["random/knn"] != found["knn"]
    assert not {"labels", "random/knn"} & run.measure(("knn",)).keys()


def test_what_is_known_of_a_probe():
    few = {"1-shot": {"top1": 1.0}, "random/1-shot": {"top1": 0.5}}
    assert split_known(("few-shot", "knn"), (), few) == (["few-shot", "knn"], {})
    both = {**few, "5-shot": {"top1": 2.0}, "sphere": {"images": 3.0}, "linear": {"top1": 9.0}}
    todo, found = split_known(("few-shot", "knn"), (), both)
    assert (todo, found.keys()) == (["knn"], {"1-shot", "random/1-shot", "5-shot", "sphere"})
    moved = {f"transfer/photos/{name}": values for name, values in both.items()}
    assert split_known(("few-shot",), ("photos",), moved)[0] == []
    assert split_known(("few-shot",), ("photos", "others"), moved)[0] == ["few-shot"]


def test_chance_is_the_most_frequent_class():
    labels = torch.tensor([0, 0, 0, 1, -1])
    features = torch.zeros(5, 2) + 1
    assert hs.evaluate.chance_of(labels) == 75
    known = labels >= 0
    assert knn(features[known], labels[known], features[known], labels[known]).top1 == 75  # features that tell nothing


def test_without_labels_it_says_what_can_be_done(tmp_path, capsys):
    import numpy as np

    np.savez(tmp_path / "some.npz", images=np.zeros((60, 8, 8), np.uint8))
    run = hs.pretrain("byol", str(tmp_path / "some.npz"), epochs=1, batch=16, out=tmp_path / "run", **SMALL)
    assert main(["evaluate", str(run.path)]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    for words in ("has no labels", f"hypersphere diagnose {run.path}", "report", "--transfer"):
        assert words in told
