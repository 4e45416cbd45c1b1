"""Attempts of a speedrun, in real processes on a few digits."""

import dataclasses
import json

import numpy as np
import pytest
from sklearn.datasets import load_digits

from hypersphere.bench.speedrun import Attempts, _free, read_attempts
from hypersphere.cli import main
from hypersphere.config import recipe


@pytest.fixture
def few_digits(tmp_path):
    images, labels = load_digits(return_X_y=True)
    chosen = np.flatnonzero(labels < 2)[:60]
    pixels = (images[chosen].reshape(-1, 8, 8) * 15).astype(np.uint8)
    np.savez(tmp_path / "few.npz", images=pixels, labels=labels[chosen])
    return tmp_path / "few.npz"


def test_attempts_are_timed_from_their_start(few_digits, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    small = ["--encoder", "hypersphere/digits", "--hidden", "8", "--projection", "4", "--epochs", "2", "--size", "8"]
    words = ["speedrun", "byol", "--data", str(few_digits), *small, "--attempts", "1", "--target", "50", "--seed", "3"]
    assert main(words) == 0
    shown = capfd.readouterr().out
    assert shown.startswith("seed 3: ")
    assert "no record: measured on validation images, not on the test set; not a ResNet-18 on CIFAR-10; " in shown
    (made,) = read_attempts(tmp_path / "benchmarks/speedrun")
    assert len(made.accuracies) == len(made.seconds) == 1
    assert made.accuracy.mean > 80  # zeros and ones
    assert all(whole > training > 0 for whole, training in zip(made.seconds, made.training, strict=True))
    assert any("loss" in line for line in made.log)
    assert not any("knn" in name for line in made.log for name in line)  # no labels before the probe
    (saved,) = (json.loads(file.read_text()) for file in (tmp_path / "benchmarks/speedrun").iterdir())
    assert saved["record"] is False
    assert saved["about"].keys() >= {"commit", "device", "torch"}
    assert main(["speedrun", "--list"]) == 0
    assert "byol" in capfd.readouterr().out
    (tmp_path / "a.json").touch()
    assert [_free(tmp_path, name).name for name in ("a", "b")] == ["a-2.json", "b.json"]  # the first attempts stay
    assert main(words) == 2
    assert "exists: remove it, or choose another --out" in capfd.readouterr().err


def test_what_counts_as_a_record():
    record = Attempts(90.74, recipe("byol", holdout="test"), [90.7, 90.8, 90.8, 90.7, 90.8], [60.0] * 5, [], {}, [])
    assert record.counts == ""
    changed = dataclasses.replace(record, accuracies=[90.7] * 5)
    assert changed.counts == "90.70 % is below 90.74 %"
    changed = dataclasses.replace(record, accuracies=[float("nan")] * 5)
    assert "below" in changed.counts
    others = {"holdout": "validation", "stem": "imagenet", "data": "digits", "init": "pretrained", "method": "distill"}
    for name, value in others.items():
        assert dataclasses.replace(record, config=record.config.replace(**{name: value})).counts
    assert dataclasses.replace(record, accuracies=[95.0] * 4).counts == "4 of 5 seeds"


def test_a_mistake_is_one_line(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["speedrun", "--attempts", "0"]) == 2
    assert capfd.readouterr().err == "hypersphere: --attempts must be at least 1, got 0\n"
    assert main(["speedrun", "--list"]) == 0
    assert "no attempts yet" in capfd.readouterr().out
