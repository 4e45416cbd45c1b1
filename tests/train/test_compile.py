"""torch.compile of methods: the same losses, one graph, and when it is chosen."""

import dataclasses

import numpy as np
import pytest
import timm
import torch
from torch._dynamo.utils import counters

import hypersphere as hs
from hypersphere.config import recipe
from hypersphere.methods import METHODS, Batch
from hypersphere.nn.patches import PatchConvolution
from hypersphere.runs import build, pretraining, training
from hypersphere.runs.build import COMPILED_FROM, build_method, trainer_of, view_pipeline
from hypersphere.runs.machine import training_execution
from hypersphere.views import Views

SMALL = {"encoder": "timm/test_vit", "size": 32, "batch": 8, "epochs": 2, "device": "cpu"}
CALLS_DISABLED = {"obow": 1}  # graph breaks that are meant


def losses(config, compiled, steps=3):
    torch.manual_seed(0)
    how = dataclasses.replace(training_execution(config), compile=compiled)
    trainer = trainer_of(config, build_method(config, 3, 10), how)
    trainer.method.start_trial(32)
    views = Views(view_pipeline(config), 0)
    pixels = torch.randint(0, 255, (32, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    for step in range(steps):
        sample = torch.arange(8) + 8 * step
        batch = Batch(views.training(pixels, sample, 0, torch.float32), sample, sample % 10)
        yield float(trainer.update([batch], 0.001, step / steps)["loss"])


@pytest.mark.parametrize("method", [name for name in METHODS if name != "distill"])
def test_a_transformer_is_traced_once_and_its_losses_stay(method, monkeypatch):
    """By dynamo with the operations of eager mode: what a compiler makes of the graph is not tested here."""
    compile_with = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, dynamic: compile_with(f, dynamic=dynamic, backend="eager"))
    torch._dynamo.reset()
    counters.clear()
    config = recipe(method, "cifar10", **SMALL)
    plain = [*losses(config, compiled=False)]
    assert [*losses(config, compiled=True)] == plain
    breaks = CALLS_DISABLED.get(method, 0)
    assert counters["stats"]["unique_graphs"] == 1 + breaks
    assert sum(counters["graph_break"].values()) == breaks


@pytest.mark.parametrize(
    ("changes", "updates", "kernels", "chosen"),
    [
        ({}, COMPILED_FROM, True, True),
        ({}, COMPILED_FROM - 1, True, False),
        ({"size": 64}, COMPILED_FROM, True, False),
        ({"compile": "off"}, COMPILED_FROM, True, False),
        ({}, COMPILED_FROM, False, False),  # no GPU, or no Triton
        ({"encoder": "torchvision/resnet18"}, COMPILED_FROM, True, False),
        ({"encoder": "tests.train.test_compile:of_ours"}, COMPILED_FROM, True, False),  # may not compile
        ({"encoder": "torchvision/resnet18", "compile": "on"}, 0, True, True),
    ],
)
def test_long_runs_of_transformers_on_photographs_are_compiled(changes, updates, kernels, chosen):
    config = recipe("byol", "imagenette-160", **{**SMALL, "size": 96, **changes})
    how = dataclasses.replace(training_execution(config), kernels=kernels)
    trainer = trainer_of(config, build_method(config, 3), how, updates)
    assert trainer.compiled == chosen
    patches = [layer for layer in trainer.method.modules() if isinstance(layer, PatchConvolution)]
    assert len(patches) == 2 * (kernels and "resnet" not in config.encoder)  # of encoder and target network


def of_ours():
    return timm.create_model("test_vit", num_classes=0, img_size=96)


def test_a_run_is_compiled_by_its_number_of_updates(tmp_path, capsys, monkeypatch):
    """With the switch of kernels as on a GPU, and eager mode in place of a compiler."""
    images = np.random.default_rng(0).integers(0, 256, (32, 96, 96, 3), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", images=images)
    compile_with = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, dynamic: compile_with(f, dynamic=dynamic, backend="eager"))
    monkeypatch.setattr(training, "precompile_update", lambda *given: None)
    as_on_gpu = lambda config: dataclasses.replace(training_execution(config), kernels=True)  # noqa: E731
    monkeypatch.setattr(pretraining, "training_execution", as_on_gpu)
    options = {**SMALL, "data": tmp_path / "images.npz", "size": 96, "knn_every": 0, "hidden": 8, "projection": 4}
    steps = 8  # of 2 epochs
    for least, told in ((steps, True), (steps + 1, False)):
        monkeypatch.setattr(build, "COMPILED_FROM", least)
        assert hs.pretrain("simclr", **options, out=tmp_path / f"{least}").steps == steps
        assert ("torch.compile takes about a minute" in capsys.readouterr().err) == told
