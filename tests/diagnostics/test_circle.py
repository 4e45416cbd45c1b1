import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from hypersphere.diagnostics.circle import BINS, angle_counts, bin_angles, plane_density, von_mises_density


def points(angles):
    angles = torch.as_tensor(angles)
    return torch.stack([angles.cos(), angles.sin()], dim=1) * 3  # length does not matter


def test_angles_fall_into_their_bins():
    counts = angle_counts(points(bin_angles()))
    assert counts.tolist() == [1] * BINS
    assert angle_counts(points([0.001] * 5)).argmax() == BINS // 2
    with pytest.raises(ValueError, match=r"features must have shape \(N, 2\), got \(5, 3\)"):
        angle_counts(torch.randn(5, 3))


def test_uniform_points_have_a_flat_density():
    at = torch.linspace(-math.pi, math.pi, 50)
    density = von_mises_density(angle_counts(points(bin_angles())), at)
    torch.testing.assert_close(density, torch.full((50,), 1 / (2 * math.pi), dtype=torch.float64))


def test_the_density_is_scipys_mixture():
    angles = stats.vonmises(kappa=4, loc=1).rvs(400, random_state=0)
    at = torch.linspace(-3, 3, 40)
    found = von_mises_density(angle_counts(points(angles)), at, concentration=20)
    wanted = np.mean([stats.vonmises(kappa=20, loc=angle).pdf(at.numpy()) for angle in angles], axis=0)
    np.testing.assert_allclose(found, wanted, atol=0.01 * wanted.max())


def test_one_von_mises_comes_out_right():
    truth = stats.vonmises(kappa=3, loc=-2)
    at = torch.linspace(-math.pi, math.pi, 73)
    found = von_mises_density(angle_counts(points(truth.rvs(20_000, random_state=1))), at)
    np.testing.assert_allclose(found, truth.pdf(at.numpy()), atol=0.03)
    assert integrate.trapezoid(found, at) == pytest.approx(1, abs=1e-6)


def test_the_density_in_the_plane_is_scipys():
    angles = stats.vonmises(kappa=2, loc=0.5).rvs(500, random_state=2)
    grid = torch.linspace(-1.5, 1.5, 21)
    found = plane_density(angle_counts(points(angles)), grid, bandwidth=0.2)
    x, y = np.meshgrid(grid, grid)
    each = [stats.norm.pdf(x, np.cos(a), 0.2) * stats.norm.pdf(y, np.sin(a), 0.2) for a in angles]
    np.testing.assert_allclose(found, np.mean(each, axis=0), atol=0.01)
