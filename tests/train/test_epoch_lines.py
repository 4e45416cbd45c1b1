"""The line of each epoch, and the pace that tells how long a run will take."""

import math
import re

import pytest
import torch

from hypersphere.evaluate import KnnMonitor
from hypersphere.runs.measured_words import MeasuredWords
from hypersphere.sphere.evenness import even_uniformity
from hypersphere.train import Plan
from hypersphere.train.epoch_lines import EpochLines
from hypersphere.util.console import Progress


class Shown(Progress):
    def __init__(self):
        self.lines = []

    def line(self, text):
        self.lines.append(text)


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("hypersphere.train.epoch_lines.time.monotonic", lambda: now[0])
    return now


def run(clock, epochs, seconds, start=0, measuring=0.0, **options):
    """Two updates of 16 images an epoch, and measurements after it; the loss is the number of the step."""
    plan = Plan(40, epochs, 16, 16, lr=0.1, warmup_epochs=0, seed=0, log_every=10, save_every=None)
    shown = Shown()
    lines = EpochLines(plan, start, shown, **options)
    for step in range(start + 1, plan.steps + 1):
        clock[0] += seconds
        lines.after_update(step, {"byol": torch.tensor(1.0 * step), "loss": torch.tensor(step + 0.5)})
        if step % 2 == 0:
            lines.after_epoch()
            clock[0] += measuring
            lines.show(step // 2, {"knn": 50.0} if step == 4 else {})
    return shown.lines


def test_a_line_has_the_mean_loss_the_speed_and_the_time_left(clock):
    found = run(clock, 3, 8.0, describe=lambda measured: f"k-NN {measured['knn']}" if measured else "")
    assert found == [
        "epoch 1/3: loss 2.000, 2.0 images/s, up to 32 s left",
        "epoch 2/3: loss 4.000, k-NN 50.0, 2.0 images/s, 16 s left",
        "epoch 3/3: loss 6.000, 2.0 images/s, 48 s in all",
    ]


def test_short_epochs_have_a_line_a_second_then_one_in_ten_and_the_first_and_last_one(clock):
    found = [int(re.search(r"epoch +(\d+)/", line)[1]) for line in run(clock, 1000, 0.01)]
    assert found[0] == 1
    assert found[-1] == 1000
    assert len(found) == pytest.approx(1 + 5 + math.log(20 / 5, 1.2), abs=2)  # in 20 seconds
    long = len(run(clock, 1000, 0.5))  # in 1000 seconds: one in ten after 50
    assert long == pytest.approx(1 + 5 + math.log(50 / 5, 1.2) + 95, abs=5)  # whole epochs of a second


def test_a_run_that_goes_on_in_the_middle_of_an_epoch(clock):
    (first, *_, last) = run(clock, 3, 4.0, start=1)
    assert first == "epoch 1/3: loss 2.500, 4.0 images/s, up to 16 s left"
    assert last.endswith("20 s in all")


def test_the_pace_leaves_the_first_updates_out(clock):
    paces = []
    run(clock, 10, 1.0, on_pace=paces.append, warm_up=3)
    assert paces == [1.0]
    run(clock, 1, 0.1, on_pace=paces.append)  # too short to tell
    assert len(paces) == 1


def test_the_pace_leaves_measurements_out(clock):
    """Which are slow at first, and seldom later."""
    paces = []
    run(clock, 10, 0.5, measuring=30.0, on_pace=paces.append)
    assert paces == [0.5]


def test_several_terms_are_listed(clock):
    plan = Plan(16, 1, 16, 16, lr=0.1, warmup_epochs=0, seed=0, log_every=10, save_every=None)
    lines = EpochLines(plan, 0, shown := Shown())
    lines.after_update(1, {name: torch.tensor(2.0) for name in ("byol", "regularizer", "loss")})
    lines.after_epoch()
    lines.show(1, {})
    assert "loss 2.000 (byol 2.000, regularizer 2.000)" in shown.lines[0]


def test_measurements_in_words():
    class Knn:
        labels = torch.tensor([0, 0, 0, 1])

    half = 0.5 * even_uniformity(64)
    words = MeasuredWords([Knn()], 64, "random encoder")
    seen = {"knn": 80.0, "knn_at_start": 60.0, "uniformity_of_features": half, "effective_rank": 12.4}
    assert words(seen) == "k-NN 80.0 % (random encoder 60.0 %, chance 75.0 %), uniformity 50 %, rank 12 of 64"
    assert words({"knn": 85.0}) == "k-NN 85.0 % (random encoder 60.0 %, chance 75.0 %)"
    assert words({}) == ""
    assert MeasuredWords([], 64, "random encoder")({"effective_rank": 3.0}) == "rank 3 of 64"
    resumed = MeasuredWords([Knn()], 64, "at the start", [{"step": 1}, {"step": 2, "knn_at_start": 33.0}])
    assert resumed({"knn": 1.0}) == "k-NN 1.0 % (at the start 33.0 %, chance 75.0 %)"
    assert isinstance(KnnMonitor.labels, property)  # by which the words know the monitor
