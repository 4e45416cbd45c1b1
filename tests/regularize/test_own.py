"""A regularizer of weights that a user wrote, in a run."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.config import recipe
from hypersphere.regularize import WeightRegularizer
from hypersphere.runs.build import build_method, regularizer_of
from hypersphere.runs.recipes import unused_options
from hypersphere.sweeps.grid import Point
from hypersphere.util.references import import_reference
from tests.networks import SMALL_ENCODER

MODULE = """
import torch
from hypersphere.regularize import WeightRegularizer

class Small(WeightRegularizer):
    def measure(self, matrices):
        return torch.stack([w.square().mean() for w in matrices])

class Unmeasured(WeightRegularizer):
    pass

class OneNumber(WeightRegularizer):
    def measure(self, matrices):
        return matrices[0].sum()

class Listed(WeightRegularizer):
    def measure(self, matrices):
        return [w.sum() for w in matrices]

class Detached(WeightRegularizer):
    def measure(self, matrices):
        return torch.stack([w.detach().norm() for w in matrices])

class Choosy(WeightRegularizer):
    def measure(self, matrices):
        raise ValueError("cannot do this")

class Unweighted(Small):
    def __init__(self, model):
        super().__init__(model)

def nothing(): ...
"""
SMALL = {"encoder": SMALL_ENCODER, "hidden": 16, "projection": 8, "device": "cpu", "knn_every": 0}


@pytest.fixture
def here(own_folder):
    (own_folder / "own_weights.py").write_text(MODULE)
    return own_folder


def test_a_run_with_it(here):
    options = {"regularizer": "own_weights:Small", "regularizer_weight": 3.0, "energy_layers": ("predictor",)}
    run = hs.pretrain("byol", "digits", epochs=1, log_every=1, progress=False, out=here / "run", **SMALL, **options)
    torch.manual_seed(run.config.seed)
    method = build_method(run.config, channels=1)
    weights = [w for name, w in method.predictor.named_parameters() if w.ndim == 2]
    wanted = 3.0 * sum((w.double() ** 2).sum() / w.numel() for w in weights)
    assert run.metrics[0]["regularizer"] == pytest.approx(wanted.item(), rel=1e-5)
    assert run.metrics[-1]["regularizer"] < run.metrics[0]["regularizer"]
    assert hs.load_run(run.path, "cpu").config.regularizer == "own_weights:Small"


def test_it_comes_beside_the_energy_and_may_be_the_class_itself(here):
    kind = import_reference("own_weights:Small")
    config = recipe("byol-mhe", "digits", regularizer=kind, **SMALL)
    method = build_method(config, channels=1)
    energy = hs.EnergyRegularizer(method, 2, "geodesic", config.energy, where=config.energy_layers)
    own = kind(method, where=config.energy_layers)
    assert isinstance(own, WeightRegularizer)
    assert torch.allclose(regularizer_of(config, method)(), energy() + own())
    assert unused_options(config) == []
    assert unused_options(recipe("byol", "digits", regularizer_weight=2.0, **SMALL)) == ["regularizer_weight"]


def test_a_sweep_notices_another_edition_of_it(here):
    point = Point({}, recipe("byol", "digits", regularizer="own_weights:Small", **SMALL))
    before = point.name
    (here / "own_weights.py").write_text(MODULE + "\n# changed\n")
    assert point.name != before


def test_the_example_in_the_docs():
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "own-regularizer.md").read_text()
    names: dict = {}
    exec(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], names)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(32, 5))
    wanted = sum(layer.weight.double().flatten(1).square().sum(1).sqrt().mean() for layer in (model[0], model[2]))
    assert torch.allclose(names["NeuronLength"](model, weight=0.1)().double(), 0.1 * wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_weights:Unmeasured", "own_weights:Unmeasured must implement measure"),
        (
            "own_weights:OneNumber",
            "--regularizer: OneNumber.measure must return a tensor with one number for each of 2",
        ),
        (
            "own_weights:Listed",
            "--regularizer: Listed.measure must return a tensor with one number for each of 2 matrices, got list",
        ),
        ("own_weights:Detached", "--regularizer: Detached.measure returned numbers that do not depend on the weights"),
        ("own_weights:Choosy", "--regularizer: cannot do this"),
        ("own_weights:Unweighted", "its __init__ must take weight and where"),
        ("own_weights:nothing", "must be a subclass of hypersphere.regularize.WeightRegularizer"),
        ("energy", "--regularizer must be a class of your own, as package.module:Class"),
    ],
)
def test_mistakes_are_told_in_a_line(here, capsys, name, message):
    options = ["--regularizer", name, "--energy-layers", "predictor", "--hidden", "16", "--out", "run"]
    assert main(["pretrain", "byol", "--data", "digits", *options]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert not (here / "run").exists()
