"""Regularizers as options of a run."""

import pytest
import torch

import hypersphere as hs
from hypersphere.config import recipe
from hypersphere.errors import UserError
from hypersphere.regularize import EnergyRegularizer, OrthogonalityRegularizer
from hypersphere.runs.build import build_method, projection_losses_of, regularizer_of
from hypersphere.train import read_metrics
from tests.networks import SMALL_ENCODER

SMALL = {"encoder": SMALL_ENCODER, "hidden": 32, "projection": 8, "epochs": 1, "knn_every": 0, "device": "cpu"}


def test_a_config_switches_regularizers_of_weights_on():
    plain = recipe("byol", "digits", **SMALL)
    method = build_method(plain, 1)
    layers = {"where": ["projector", "predictor"], "metric": "geodesic"}
    assert regularizer_of(plain, method) is None
    for options, wanted in (
        ({"energy": 2.0}, EnergyRegularizer(method, weight=2.0, **layers)),
        ({"energy": 2.0, "energy_half_space": True}, EnergyRegularizer(method, weight=2.0, half_space=True, **layers)),
        (
            {"energy": 2.0, "energy_projection": 5, "seed": 7},
            EnergyRegularizer(method, weight=2.0, dimensions=5, seed=7, **layers),
        ),
        ({"orthogonality": 0.5}, OrthogonalityRegularizer(method, "soft", 0.5, layers["where"])),
        (
            {"orthogonality": 0.5, "orthogonality_kind": "srip"},
            OrthogonalityRegularizer(method, "srip", 0.5, layers["where"]),
        ),
    ):
        assert regularizer_of(plain.replace(**options), method)() == wanted()
    both = plain.replace(energy=2.0, orthogonality=0.5)
    parts = [regularizer_of(both.replace(**{name: 0.0}), method)() for name in ("energy", "orthogonality")]
    torch.testing.assert_close(regularizer_of(both, method)(), sum(parts))
    with pytest.raises(UserError, match=r"`energy_layers`: .*'nowhere'"):
        regularizer_of(plain.replace(orthogonality=0.5, energy_layers=("nowhere",)), method)


@pytest.mark.parametrize(
    "options",
    [{"orthogonality": -1.0}, {"koleo": -1.0}, {"sigreg": float("nan")}, {"variance_covariance": -0.1},
     {"energy_projection": 1}, {"orthogonality_kind": "hard"}],
)  # fmt: skip
def test_wrong_options_are_named(options):
    with pytest.raises(UserError, match=f"`{next(iter(options))}` must be"):
        recipe("byol", "digits", **options)


@pytest.mark.parametrize(
    ("method", "options", "term"),
    [
        ("byol", {"energy": 1.0, "energy_projection": 4}, "regularizer"),
        ("byol", {"energy": 1.0, "energy_half_space": True, "orthogonality": 0.01}, "regularizer"),
        ("simclr", {"orthogonality": 0.1, "orthogonality_kind": "srip"}, "regularizer"),
        ("byol", {"variance_covariance": 0.1}, "variance_covariance"),
        ("simclr", {"koleo": 0.1}, "koleo"),
        ("byol", {"sigreg": 0.05}, "sigreg"),
    ],
)
def test_a_run_with_each(tmp_path, method, options, term):
    run = hs.pretrain(method, "digits", out=tmp_path / "run", log_every=1, progress=False, **SMALL, **options)
    lines = [line for line in read_metrics(run.path / "metrics.jsonl") if "loss" in line]
    assert len(lines) == 8
    own = {"byol": "byol", "simclr": "nt_xent"}[method]
    for line in lines:
        weight = 1 if term == "regularizer" else options[term]
        assert line["loss"] == pytest.approx(line[own] + weight * line[term], rel=1e-4)
    assert len({line[term] for line in lines}) == 8
    if term == "sigreg":  # of two views at each update, counted for a run that is resumed
        assert hs.load_run(run.path).method.sigreg.calls == 16


def test_what_spreads_features_is_off_by_default():
    assert projection_losses_of(recipe("byol", "digits")) == ()
    assert not any("sigreg" in name for name in build_method(recipe("byol", "digits", **SMALL), 1).state_dict())
