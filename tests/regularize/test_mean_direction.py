"""The mean direction of neurons, and what it has to do with energy."""

import math

import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere.regularize import MeanDirectionRegularizer
from tests.regularize.networks import network


def test_it_is_the_squared_length_of_the_mean_of_unit_neurons():
    model = network().double()
    found = MeanDirectionRegularizer(model, weight=3.0)
    w = nn.functional.normalize(model["predictor"].weight, dim=1)
    assert found.per_layer()["predictor"].item() == pytest.approx(w.mean(0).norm().item() ** 2)
    assert found().item() == pytest.approx(3 * sum(value.item() for value in found.per_layer().values()))


def layer(w):
    linear = nn.Linear(w.shape[1], w.shape[0], bias=False).to(w.dtype)
    linear.weight.data = w.clone()
    return linear


def test_neurons_that_balance_have_none_and_those_that_coincide_have_one():
    w = torch.randn(5, 8, dtype=torch.float64)
    assert MeanDirectionRegularizer(layer(torch.cat([w, -w])))().item() == pytest.approx(0, abs=1e-15)
    assert MeanDirectionRegularizer(layer(w[:1].expand(4, -1)))().item() == pytest.approx(1)


def test_its_gradient_is_the_first_order_of_the_angular_energy():
    """Around right angles θ⁻² = (2/π)² + (16/π³) cos θ + …, and the mean cosine of pairs is (N‖m‖² − 1)/(N − 1)."""
    n = 6
    w = torch.eye(n, 40, dtype=torch.float64) + 1e-6 * torch.randn(n, 40, dtype=torch.float64)
    plain, energy = layer(w), layer(w)
    MeanDirectionRegularizer(plain, weight=16 / math.pi**3 * n / (n - 1))().backward()
    hs.EnergyRegularizer(energy, s=2, metric="geodesic")().backward()
    torch.testing.assert_close(plain.weight.grad, energy.weight.grad, rtol=0, atol=1e-6)
    assert plain.weight.grad.abs().max() > 0.01
