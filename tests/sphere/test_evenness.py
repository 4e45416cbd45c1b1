"""An even spread, against points drawn evenly and closed forms."""

import math

import pytest
import torch

from hypersphere.losses import spherical_mmd
from hypersphere.sphere import hyperspherical_energy, uniformity
from hypersphere.sphere.evenness import even_energy, even_uniformity


@pytest.mark.parametrize("dimensions", [5, 64, 4608])
def test_even_is_what_random_points_have(dimensions):
    torch.manual_seed(0)
    x = torch.randn(3000, dimensions)
    assert even_uniformity(dimensions) == pytest.approx(float(uniformity(x)), abs=0.01)
    assert even_energy(dimensions) == pytest.approx(float(hyperspherical_energy(x, 2, "geodesic")), rel=0.01)


@pytest.mark.parametrize("t", [0.5, 2.0, 4.0])
def test_the_discrepancy_of_uniform_points_is_nothing(t):
    torch.manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(3000, 16, dtype=torch.double))
    i, j = torch.triu_indices(len(x), len(x), 1)
    kernel = torch.exp(-t * (x[i] - x[j]).square().sum(dim=1))
    assert float(spherical_mmd(x, t)) == pytest.approx(
        float(kernel.mean()) - math.exp(even_uniformity(16, t)), abs=1e-12
    )
    assert abs(float(spherical_mmd(x, t))) < 2e-4
    cap = torch.nn.functional.normalize(x + 1)
    assert float(spherical_mmd(cap, t)) > 0.05


def test_closed_forms():
    # on the sphere in space cosines are even on [−1, 1]: E exp(4 cos) = sinh(4) / 4
    assert even_uniformity(3) == pytest.approx(math.log(math.sinh(4) / 4) - 4)
    assert even_energy(4, s=1e-9) == pytest.approx(1)
    # in space the distance d has the density d/2 on [0, 2]: E d⁻¹ = 1, E −log d = ½ − log 2
    assert even_energy(3, s=1.0, metric="euclidean") == pytest.approx(1)
    assert even_energy(3, s=0.0, metric="euclidean") == pytest.approx(0.5 - math.log(2))
    assert even_energy(3, s=1.0) == pytest.approx(0.9259685, rel=1e-5)  # ½ ∫ sin θ / θ = Si(π) / 2
    assert even_energy(3) == even_energy(2) == math.inf
