"""What a run will need, measured before it starts; and options that fit."""

import json

import pytest
import torch

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.config import recipe
from hypersphere.data import Dataset
from hypersphere.errors import UserError
from hypersphere.runs import dry_run, estimate
from hypersphere.runs.build import build_method, plan_of, view_pipeline
from hypersphere.runs.estimate import RunEstimate, checkpoint_size, proposal, try_updates
from hypersphere.runs.machine import training_execution
from hypersphere.runs.recipes import recipe_for
from tests.networks import SMALL_ENCODER

SMALL = {"encoder": SMALL_ENCODER, "hidden": 32, "projection": 8, "device": "cpu"}


def test_a_dry_run_tells_the_plan_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--data", "digits", "--epochs", "3", "--hidden", "32", "--device", "cpu", "--encoder", SMALL_ENCODER]
    assert main(["pretrain", "byol", *words, "--dry-run"]) == 0
    shown = capsys.readouterr()
    for text in ("epochs", "hidden", "plan: 24 updates of 128 images, into runs/byol-digits-", "estimate: about"):
        assert text in shown.out
    assert "of disk" in shown.out
    assert "1,137 training images, 300 held out" in shown.err
    assert list(tmp_path.iterdir()) == []
    found = hs.pretrain("byol", "digits", epochs=3, dry_run=True, **SMALL)
    assert (found.training_images, found.held_out, found.steps) == (1137, 300, 24)
    assert found.config.hash == recipe("byol", "digits", epochs=3, **SMALL).hash
    assert found.micro_batch is found.proposal is None
    with pytest.raises(UserError, match="`dry_run` applies to new runs, not to `resume`"):
        hs.pretrain(resume=tmp_path, dry_run=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(UserError, match="full is not empty: choose another `out`"):
        hs.pretrain("byol", "digits", out="full", dry_run=True, **SMALL)


def test_a_checkpoint_is_as_large_as_said(tmp_path):
    run = hs.pretrain("byol", "digits", epochs=1, knn_every=0, out=tmp_path / "run", progress=False, **SMALL)
    size = (run.path / "checkpoint.pt").stat().st_size
    assert checkpoint_size(run.config, run.method) == pytest.approx(size, rel=0.5, abs=60_000)  # with its names


def test_time_and_memory_grow_with_the_images_of_an_update(monkeypatch):
    """Of updates that take 10 ms, and 1 s and 1 MB for each image."""
    config = recipe("byol", "digits", batch=512, micro_batch=128, **SMALL)
    plan, images = plan_of(config, 1137), hs.data.load_data("digits")[0]
    tried = []

    def measure(count, device):
        tried.append(count)
        return 0.01 + count, 1e6 * count

    monkeypatch.setattr(estimate, "trial_update", lambda config, method, how, images, count: count)
    monkeypatch.setattr(estimate, "_measure", measure)
    found = try_updates(config, plan, None, training_execution(config), images)
    assert tried == [8, 16]
    assert found.update == pytest.approx(512.01)
    assert found.memory(128) == pytest.approx(128e6)


def test_the_encoder_s_operations_are_those_of_its_layers():
    """Two multiplications and additions for each weight of a convolution and each pixel; two images."""
    config = recipe("byol", "digits", encoder="hypersphere/digits")
    encoder, x = build_method(config, 1).encoder.eval(), torch.zeros(2, 1, 8, 8)
    total = []
    for layer in encoder.modules():
        if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear):
            layer.register_forward_hook(
                lambda layer, given, found: total.append(
                    2 * layer.weight.numel() * (found[0, 0].numel() if found.ndim == 4 else 1) * len(found)
                )
            )
    encoder(x)
    assert estimate._operations(config) == sum(total)


def test_a_proposal_fits_and_is_parsed_by_the_command(tmp_path):
    config = recipe("byol", str(tmp_path), size=224, encoder="torchvision/resnet50", stem="imagenet", epochs=300)
    plan = plan_of(config, 10_240)
    words = proposal(config, plan, 400.0)
    options = dict(part.replace("`", "").split(" ") for part in words.partition(":")[0].split(", "))
    smaller = config.replace(**{name: int(v) if v.isdigit() else v for name, v in options.items()})
    assert smaller.encoder == "torchvision/resnet18"
    assert view_pipeline(smaller).size == 64
    share = estimate._operations(smaller) / estimate._operations(config)
    assert smaller.epochs * plan.steps_per_epoch * 400.0 * share <= estimate.FITTING


def test_an_estimate_in_words():
    one = RunEstimate(7200.0, 0.5, 256.0, 300, 3e9, 4e8, "cpu")
    assert str(one) == (
        "about 2.0 h for 300 epochs on this CPU (500 ms an update, 256 images/s), 3 GB of memory, 400 MB of disk"
    )
    assert not one.long
    assert RunEstimate(1e6, 0.5, 256.0, 300, None, 4e8, "cpu").long
    assert not RunEstimate(1e6, 0.5, 256.0, 300, None, 4e8, "cuda").long


def test_the_start_is_measured_once_also_if_the_run_is_resumed(tmp_path):
    def metrics(folder):
        return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]

    options = {**SMALL, "epochs": 2, "progress": False}
    run = hs.pretrain("byol", "digits", out=tmp_path / "run", **options)
    measured = [line for line in metrics(run.path) if "knn" in line]
    assert [line["epoch"] for line in measured] == [1, 2]
    assert ["knn_at_start" in line for line in measured] == [True, False]
    options["epochs"] = 1
    untrained = hs.pretrain("byol", "digits", out=tmp_path / "still", lr=1e-12, weight_decay=0.0, **options)
    (same,) = {line["knn_at_start"] for line in metrics(untrained.path) if "knn_at_start" in line}
    assert same == measured[0]["knn_at_start"] == pytest.approx(metrics(untrained.path)[-1]["knn"], abs=8)
    for name in ("checkpoint.pt", "metrics.jsonl"):
        (run.path / name).unlink()
    hs.pretrain(resume=run.path, progress=False)
    assert [line for line in metrics(run.path) if "knn" in line] == measured


def test_a_finished_run_that_is_to_be_longer(tmp_path):
    run = hs.pretrain("byol", "digits", epochs=1, knn_every=0, out=tmp_path / "run", progress=False, **SMALL)
    with pytest.raises(UserError, match=rf"its epochs is 1, not 4; it is finished; .* pass `init` {run.path} instead"):
        hs.pretrain(resume=run.path, epochs=4)
    longer = hs.pretrain("byol", "digits", init=run.path, epochs=1, out=tmp_path / "b", progress=False, **SMALL)
    assert longer.step == run.step


def test_workers_share_the_decoding_but_not_their_start(folder):
    """Starting them took most of the time that was measured before."""
    counts = {}
    for workers in (1, 8):
        config = recipe_for("byol", str(folder), workers=workers)
        dataset = Dataset.resolve(config)
        counts[workers] = dry_run._seconds_of_decoding(dataset, dataset.split("validation"))
    assert 0 < counts[8] < counts[1] / 2
    assert counts[1] < 2.0  # 36 small pictures; eight workers take longer to start
