"""torch.compile of methods: the same losses, one graph, and when it is chosen."""

import dataclasses

import pytest
import torch
from torch._dynamo.utils import counters

from hypersphere.config import recipe
from hypersphere.methods import METHODS, Batch
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
    ("encoder", "updates", "compile", "kernels", "chosen"),
    [
        ("timm/test_vit", COMPILED_FROM, "auto", True, True),
        ("timm/test_vit", COMPILED_FROM - 1, "auto", True, False),
        ("timm/test_vit", COMPILED_FROM, "off", True, False),
        ("timm/test_vit", COMPILED_FROM, "auto", False, False),  # no GPU, or no Triton
        ("torchvision/resnet18", COMPILED_FROM, "auto", True, False),
        ("torchvision/resnet18", 0, "on", True, True),
    ],
)
def test_long_runs_of_transformers_are_compiled(encoder, updates, compile, kernels, chosen):
    config = recipe("byol", "cifar10", **{**SMALL, "encoder": encoder}, compile=compile)
    how = dataclasses.replace(training_execution(config), kernels=kernels)
    assert trainer_of(config, build_method(config, 3), how, updates).compiled == chosen
