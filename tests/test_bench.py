import json
import time

import pytest
import torch
from torch import nn

from hypersphere.bench import energy, step
from hypersphere.bench.timing import milliseconds
from hypersphere.cli import main
from hypersphere.config import recipe
from hypersphere.errors import UserError
from hypersphere.methods import BYOL, Batch
from hypersphere.optim import LARS
from hypersphere.sphere import hyperspherical_energy
from hypersphere.train import Trainer

CPU = torch.device("cpu")


def test_the_median_of_what_a_function_takes():
    naps = iter([0.0, 0.002, 0.03, 0.002])
    assert milliseconds(lambda: time.sleep(next(naps)), CPU, repeats=3) == pytest.approx(2, abs=1.5)


def test_operations_are_those_of_the_matrix_products():
    """Online: once forward, twice backward, but for the first layer, whose input has no gradient; target: forward."""
    method = BYOL(nn.Sequential(nn.Flatten(), nn.Linear(12, 6)), 6, hidden=16, projection=5)
    trainer = Trainer(method, LARS(method.parameters(), lr=0.0), None, CPU, torch.float32)
    batch = Batch(tuple(torch.randn(2, 24, 3, 2, 2)), torch.arange(24), None)
    first, projector, predictor = 12 * 6, 6 * 16 + 16 * 5, 5 * 16 + 16 * 5
    products = (2 * first + 3 * projector + 3 * predictor) + (first + projector)
    assert step._operations(trainer, batch) == 2 * 2 * 24 * products


def test_the_obvious_energy_is_ours():
    w = torch.randn(50, 7, dtype=torch.float64)
    torch.testing.assert_close(energy.obvious(w), hyperspherical_energy(w, 2, "geodesic"), rtol=1e-4, atol=0)


def test_memory_beyond_is_what_a_function_takes():
    assert 100 < energy._mib_beyond(lambda: (torch.ones(2**25), time.sleep(0.02))) < 250


def test_the_command_measures_prints_and_keeps(tmp_path, capsys, monkeypatch):
    words = ["bench", "--data", "digits", "--methods", "byol-mhe", "--parts", "step", "--batch", "16"]
    monkeypatch.setattr("hypersphere.bench.parts._processor", lambda: "Some CPU (R) 9")
    (tmp_path / "some-cpu-r-9.json").write_text('{"views": {"kept": true}}')
    assert main([*words, "--device", "cpu", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "images per second" in shown
    assert "byol-mhe on all layers" in shown
    kept = json.loads((tmp_path / "some-cpu-r-9.json").read_text())
    assert kept["views"] == {"kept": True}
    assert kept["step"]["batch"] == 16
    assert kept["step"]["machine"]["torch"] == torch.__version__
    figures = kept["step"]["found"]["byol-mhe"]
    assert figures["images_per_second"] == pytest.approx(16e3 / figures["step_ms"])
    stages = ("views_ms", "forward_ms", "backward_ms", "update_ms", "regularizer_ms")
    assert 0.4 < sum(figures[stage] for stage in stages) / figures["step_ms"] < 2.5


def test_the_first_update_is_seen_or_its_failure_told():
    config = recipe("byol", "digits", device="cpu", batch=32)
    assert 1 < step.seconds_to_first_update(config) < 100
    with pytest.raises(UserError, match=r"no first update was seen: .*cuda:7"):
        step.seconds_to_first_update(config.replace(device="cuda:7"))


def test_a_peer_that_is_not_installed(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(__import__("sys").modules, "lightly", None)
    assert main(["bench", "--data", "digits", "--peer", "lightly", "--out", str(tmp_path)]) == 2
    assert "pip install lightly" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
