"""Thomson's problem: points on the sphere that repel each other by 1/r."""

import pytest
import torch

import hypersphere as hs

MINIMA = {4: 3.674234614, 6: 9.985281374, 12: 49.165253058, 20: 150.881568334, 32: 412.261274651}


def minimize(n: int, seed: int) -> float:
    points = torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [points], max_iter=3000, tolerance_grad=1e-12, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def energy():
        optimizer.zero_grad()
        value = hs.hyperspherical_energy(points, s=1.0, reduction="sum") / 2  # unordered pairs
        value.backward()
        return value

    optimizer.step(energy)
    return energy().item()


@pytest.mark.parametrize("n", MINIMA)
def test_random_starts_reach_the_known_minimum(n):
    best = min(minimize(n, seed) for seed in range(3))
    assert best == pytest.approx(MINIMA[n], abs=1e-6)
