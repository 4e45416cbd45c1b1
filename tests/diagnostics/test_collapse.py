import math

import pytest
import torch
from torch import nn

from hypersphere.diagnostics.collapse import CollapseAlarm, SpreadMonitor, stays_collapsed
from hypersphere.errors import Collapsed
from hypersphere.sphere import alignment, effective_rank

FINE = {"spread": 0.5, "effective_rank": 40.0, "step": 1000}
GONE = {"spread": 0.01, "effective_rank": 1.1, "step": 1000}


@pytest.mark.parametrize("dimensions", [8, 100])
def test_the_monitor_measures_two_views(dimensions):
    views = torch.randn(64, 12), torch.randn(64, 12)
    encoder = nn.Sequential(nn.Linear(12, dimensions), nn.ReLU(), nn.BatchNorm1d(dimensions))
    pieces = list(zip(*(view.split(25) for view in views), strict=True))
    seen = SpreadMonitor(1, lambda: pieces, torch.float32)(encoder)
    assert encoder[2].num_batches_tracked == 0
    with torch.no_grad():
        one, other = (encoder.eval()(view) for view in views)
    assert seen["alignment"] == pytest.approx(float(alignment(one, other)), rel=1e-4)
    assert seen["effective_rank"] == pytest.approx(float(effective_rank(one)), rel=1e-4)
    deviation = float(nn.functional.normalize(one).std(0).mean())
    assert seen["spread"] == pytest.approx(deviation * dimensions**0.5, rel=1e-4)


def test_features_that_are_no_numbers_have_no_rank():
    seen = SpreadMonitor(1, lambda: [(torch.full((4, 3), math.inf), torch.ones(4, 3))], torch.float32)(nn.Identity())
    assert math.isnan(seen["effective_rank"])


def alarms(seen, capsys, epochs=100, every=10):
    alarm = CollapseAlarm(epochs, stop=False)
    told = []
    for number, values in enumerate(seen, start=1):
        alarm(number * every, values)
        told.append("collapsed" in capsys.readouterr().err)
    return told


def test_it_warns_once_when_features_stay_collapsed(capsys):
    assert alarms([FINE, GONE, GONE, GONE, FINE, GONE, GONE], capsys) == [False, False, True, False, False, False, True]
    assert alarms([FINE, GONE, FINE, GONE, FINE], capsys) == [False] * 5  # a moment is none
    assert alarms([GONE, GONE, FINE], capsys, every=5) == [False] * 3  # encoders begin like that
    assert alarms([FINE, {}, {}], capsys) == [False] * 3


@pytest.mark.parametrize(("epochs", "every"), [(1, 1), (2, 2), (12, 10), (19, 10), (100, 100)])
def test_the_last_measurement_counts_on_its_own(epochs, every, capsys):
    """As a warning, told once; a run is not stopped where it ends anyway."""
    measured = [epoch for epoch in range(1, epochs + 1) if epoch % every == 0 or epoch == epochs]
    for last, told in ((GONE, True), (FINE, False)):
        seen = {epoch: last if epoch == epochs else FINE for epoch in measured}
        for stop in (False, True):
            alarm = CollapseAlarm(epochs, stop)
            for epoch in measured:
                alarm(epoch, seen[epoch])
            assert capsys.readouterr().err.count(f"collapsed by epoch {epochs}: ") == told
        assert stays_collapsed([{**seen[epoch], "epoch": epoch} for epoch in measured], epochs) == told
    assert alarms([FINE, GONE, GONE, GONE], capsys, epochs=40) == [False, False, True, False]


def test_a_few_updates_with_batchnorm_are_no_collapse(capsys):
    """Features coincide in evaluation mode because the running statistics lag: with those of a batch they do not."""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(16)
    encoder, images = nn.Sequential(norm, nn.Linear(16, 16)), 100 + torch.randn(64, 16)
    monitor = SpreadMonitor(1, lambda: [(images, images)], torch.float32)
    for epochs, updates, told in ((1, 5, False), (2, 10, False), (1, 25, True)):
        norm.reset_running_stats()
        for _ in range(min(5, updates)):
            encoder(images)
        seen = monitor(encoder)
        assert seen["spread"] < 0.05
        CollapseAlarm(epochs, stop=False)(epochs, {**seen, "step": updates})
        assert ("collapsed" in capsys.readouterr().err) == told
        assert stays_collapsed([{**seen, "epoch": epochs, "step": updates}], epochs) == told
        assert stays_collapsed([{**seen, "epoch": epochs, "step": updates}], epochs, norm="none")
    with torch.no_grad():
        for _ in range(22):
            encoder(images)
    assert monitor(encoder)["spread"] > 0.05


def test_a_run_that_goes_on_remembers_the_last_measurement(capsys):
    for before, told in (([FINE, GONE], True), ([GONE, FINE], False), ([], False)):
        lines = [{"step": n, "loss": 1.0} for n in range(3)]
        lines += [{**seen, "epoch": 20 + 10 * n} for n, seen in enumerate(before)]
        CollapseAlarm(100, stop=False, seen=lines)(40, GONE)
        assert ("collapsed" in capsys.readouterr().err) == told


def test_it_stops_a_run_and_says_what_helps():
    alarm = CollapseAlarm(10, stop=True, idle={"tau", "norm", "queue"})
    alarm(2, GONE)
    helps = "a smaller `lr`, a longer `warmup`, an `energy` on the encoder$"
    with pytest.raises(Collapsed, match=rf"by epoch 3: spread 0.01 .* effective rank 1.1. What usually helps: {helps}"):
        alarm(3, GONE)
