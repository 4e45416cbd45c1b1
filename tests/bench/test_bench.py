import dataclasses
import json
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from hypersphere.bench import agreement, energy, files, parts, step
from hypersphere.bench.timing import milliseconds
from hypersphere.cli import main
from hypersphere.config import recipe
from hypersphere.data import Dataset, decode, load_data, worker_stream
from hypersphere.errors import UserError
from hypersphere.methods import BYOL, METHODS, Batch
from hypersphere.optim import LARS
from hypersphere.runs.machine import training_execution
from hypersphere.runs.pretraining import start
from hypersphere.runs.recipes import recipe_for
from hypersphere.sphere import hyperspherical_energy
from hypersphere.train import Trainer
from tests.networks import those_of
from tests.processes import without_privileges

CPU = torch.device("cpu")


def test_the_median_of_what_a_function_takes():
    naps = iter([0.0, 0.05, 0.5, 0.05])
    assert milliseconds(lambda: time.sleep(next(naps)), CPU, repeats=3) == pytest.approx(50, abs=40)


def test_operations_are_those_of_the_matrix_products():
    """Online: once forward, twice backward, but for the first layer, whose input has no gradient; target: forward."""
    method = BYOL(nn.Sequential(nn.Flatten(), nn.Linear(12, 6)), 6, hidden=16, projection=5)
    trainer = Trainer(method, LARS(method.parameters(), lr=0.0), None, CPU, torch.float32)
    batch = Batch(tuple(torch.randn(2, 24, 3, 2, 2)), torch.arange(24), None)
    first, projector, predictor = 12 * 6, 6 * 16 + 16 * 5, 5 * 16 + 16 * 5
    products = (2 * first + 3 * projector + 3 * predictor) + (first + projector)
    assert step.operations(trainer, batch) == 2 * 2 * 24 * products


@pytest.mark.parametrize("name", METHODS)
def test_the_update_of_every_method_is_timed(name, monkeypatch):
    monkeypatch.setattr(step, "matmul_rate", lambda device, precision: 0.1)
    small = those_of(name, hidden=16, projection=8, prototypes=16, queue=32)
    config = recipe(name, "digits", batch=16, device="cpu", **small)
    found = step.time_step(config, training_execution(config), load_data("digits")[0], updates=1)
    assert found["images_per_second"] > 0
    assert found["tflop_per_step"] > 0
    assert found["share_of_matmul"] == found["tflops"] / 0.1


def test_the_obvious_energy_is_ours():
    w = torch.randn(50, 7, dtype=torch.float64)
    torch.testing.assert_close(energy.obvious(w), hyperspherical_energy(w, 2, "geodesic"), rtol=1e-4, atol=0)


def test_memory_beyond_is_what_a_function_takes():
    assert 100 < energy._mib_beyond(lambda: (torch.ones(2**25), time.sleep(0.02))) < 250


def test_the_command_measures_prints_and_keeps(tmp_path, capsys, monkeypatch):
    words = ["bench", "--data", "digits", "--methods", "byol-mhe", "--parts", "step", "--batch", "16"]
    monkeypatch.setattr("hypersphere.bench.parts._processor", lambda: "Some CPU (R) 9")
    monkeypatch.setattr(step, "matmul_rate", lambda device, precision: 0.1)
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
    assert figures["batch"] == 16
    assert figures["images_per_second"] == pytest.approx(16e3 / figures["step_ms"])
    stages = ("views_ms", "forward_ms", "backward_ms", "update_ms", "regularizer_ms")
    assert 0.4 < sum(figures[stage] for stage in stages) / figures["step_ms"] < 2.5


@pytest.mark.parametrize(
    ("out", "held", "told"),
    [
        ("file", "", "File exists"),
        ("file/below", "", "Not a directory"),
        ("out", '{"views": {', "some-cpu.json is damaged"),
        ("out", "[1, 2]", "some-cpu.json holds no figures"),
        ("out", None, "Is a directory"),
    ],
)
def test_where_figures_cannot_be_kept_nothing_is_measured(tmp_path, capsys, monkeypatch, out, held, told):
    monkeypatch.setattr("hypersphere.bench.parts._processor", lambda: "Some CPU")
    monkeypatch.setattr(energy, "on_cpu", lambda: pytest.fail("measured"))
    file = tmp_path / ("file" if out.startswith("file") else "out/some-cpu.json")
    file.parent.mkdir(exist_ok=True)
    file.mkdir() if held is None else file.write_text(held)
    words = ["bench", "--parts", "energy", "--data", "digits", "--device", "cpu", "--out", str(tmp_path / out)]
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert shown.count("\n") == 1
    assert file.is_dir() if held is None else file.read_text() == held


def test_arrays_without_labels_have_steps_but_no_probes(tmp_path, capsys):
    np.savez(tmp_path / "x.npz", images=np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8))
    words = [
        "bench",
        "--data",
        tmp_path / "x.npz",
        "--methods",
        "byol",
        "--batch",
        "16",
        "--encoder",
        "hypersphere/digits",
    ]
    words = [*map(str, words), "--device", "cpu", "--out", str(tmp_path), "--parts"]
    assert main([*words, "views"]) == 0
    assert main([*words, "probes"]) == 2
    assert "the part probes needs labels" in capsys.readouterr().err


def test_where_nothing_may_be_written_nothing_is_measured(tmp_path):
    tmp_path.chmod(0o500)
    words = ["bench", "--parts", "energy", "--data", "digits", "--device", "cpu", "--out", tmp_path]
    (done,) = without_privileges(words)
    assert done.returncode == 2
    assert "Permission denied" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_first_update_is_seen_or_its_failure_told(tmp_path):
    config = recipe("byol", "digits", device="cpu", batch=32)
    assert 1 < step.seconds_to_first_update(config, tmp_path) < 100
    with pytest.raises(UserError, match=r"the first update failed: .*cuda:7"):
        step.seconds_to_first_update(config.replace(device="cuda:7"), tmp_path)


def test_the_first_update_is_one_of_the_config(monkeypatch, tmp_path):
    """As the command line reads the command."""
    seen = []

    def started(config, **_):
        seen.append(config)
        raise UserError("enough")

    def popen(command, **_):
        main(command[3:])
        raise UserError("enough")

    monkeypatch.setattr("hypersphere.runs.pretraining.start", started)
    monkeypatch.setattr(step.subprocess, "Popen", popen)
    config = recipe("byol", "digits", device="cpu", batch=32, encoder="hypersphere/alexnet", precision="bfloat16")
    with pytest.raises(UserError, match="enough"):
        step.seconds_to_first_update(config, tmp_path)
    assert [found.replace(out=None, log_every=config.log_every) for found in seen] == [config]


def test_a_peer_that_is_not_installed(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(__import__("sys").modules, "lightly", None)
    assert main(["bench", "--data", "digits", "--peer", "lightly", "--out", str(tmp_path)]) == 2
    assert "pip install lightly" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def bench_of_digits():
    config = recipe("byol", "digits", device="cpu", batch=64, hidden=32, projection=8, epochs=1, log_every=1)
    return parts.Bench([config], training_execution(config), peer=False)


def test_the_losses_compared_are_those_of_a_run(bench_of_digits, tmp_path):
    config = bench_of_digits.configs[0].replace(holdout="test")
    run = start(config.replace(out=tmp_path / "run"), progress=False)
    logged = [line["loss"] for line in run.metrics if "loss" in line]
    losses = agreement.first_losses(config, bench_of_digits.how, bench_of_digits.images, len(logged))
    assert len(logged) > 10
    torch.testing.assert_close(losses, torch.tensor(logged, dtype=torch.float64))


def test_agreement_sees_a_coarser_arithmetic(bench_of_digits):
    config, how = bench_of_digits.configs[0], bench_of_digits.how
    same, coarse = (
        agreement.agreement(config, dataclasses.replace(how, precision=precision), bench_of_digits.images, updates=2)
        for precision in (torch.float32, torch.bfloat16)
    )
    assert [seed["difference"] for seed in same.values()] == [0, 0, 0]
    assert all(1e-5 < seed["difference"] < 0.05 for seed in coarse.values())


def test_monitors_take_a_share_of_a_run(bench_of_digits):
    found = bench_of_digits.monitors()
    total = found.pop("all")
    assert set(found) == {"EnergyMonitor", "SpreadMonitor", "KnnMonitor"}
    assert total["seconds"] == pytest.approx(sum(figures["seconds"] for figures in found.values()))
    assert 0 < total["share_of_training"] < 1


def test_updates_fed_from_files(bench_of_digits, tmp_path, monkeypatch, capsys):
    """A decoder that takes 50 ms an image is what the updates wait for."""
    read = decode.read_pixels
    monkeypatch.setattr(worker_stream, "read_pixels", lambda *given: (time.sleep(0.05), read(*given))[1])
    files.draw_folder(bench_of_digits.images, tmp_path, 8, width=64, height=48)
    options = {"size": 32, "encoder": "hypersphere/digits", "batch": 4, "device": "cpu", "hidden": 16}
    config = recipe_for("simclr", str(tmp_path), **options)
    found = bench_of_digits._files(config, Dataset.resolve(config).split("validation").train)
    figures = found["simclr hypersphere/digits"]
    assert figures["updates_an_epoch"] == 2
    assert figures["waiting_share"] > 0.4
    assert 150 < figures["step_ms"] - figures["step_of_held_images_ms"] < 1000  # four images
    assert found["one core"]["fed_a_second"] < found["one core"]["decoded_a_second"]
    held = replace(bench_of_digits, configs=[config])
    assert held.images.pixels.shape == (8, 3, 37, 37)  # of a folder the other parts see decoded images


def test_photographs_are_compared_with_a_peer_as_it_comes_and_at_its_best(bench_of_digits, tmp_path, monkeypatch):
    """lightly's speeds are given, with the options that they are measured with."""
    files.draw_folder(bench_of_digits.images, tmp_path, 8, width=64, height=48)
    config = recipe_for("byol", str(tmp_path), size=32, batch=4, device="cpu", hidden=16)
    monkeypatch.setattr(files, "ON_CPU", (("hypersphere/digits", 32, 4),))
    asked = []

    def peer(config, images, *_, fast, **__):
        asked.append((config.encoder, len(images), fast))
        return 40.0 if fast else 10.0

    monkeypatch.setattr(parts.lightly, "images_per_second", peer)
    found = replace(bench_of_digits, configs=[config], peer=True).photos()
    assert list(found) == ["digits 32 kept", "digits 32 files", "lightly", "lightly at its best"]
    assert asked == [("hypersphere/digits", 8, False), ("hypersphere/digits", 8, True)]
    for row in ("digits 32 kept", "digits 32 files"):
        assert found[row]["times_lightly"] == found[row]["images_per_second"] / 10
        assert found[row]["times_lightly at its best"] == found[row]["images_per_second"] / 40
