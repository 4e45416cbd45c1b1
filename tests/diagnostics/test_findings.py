"""What is said of points whose shape is known."""

import math

import numpy as np
import pytest
import torch

from hypersphere.diagnostics import point_cloud as clouds
from hypersphere.diagnostics.collapse import SpreadMonitor, is_collapsed, spread
from hypersphere.diagnostics.embeddings import of_array
from hypersphere.diagnostics.findings import alignment_finding, findings_of, on_the_circle
from hypersphere.diagnostics.point_cloud import summarize
from hypersphere.sphere import hyperspherical_energy, rankme, uniformity


def cloud_of(x):
    return summarize(of_array(np.asarray(x, dtype=np.float32)))


def found(x):
    return {finding.name: finding for finding in findings_of(cloud_of(x))}


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape)


def test_an_even_spread_is_healthy():
    seen = found(normal(2000, 32))
    assert {finding.health for finding in seen.values()} == {"good", ""}
    assert seen["effective rank"].value > 30
    assert seen["spread by dimension"].value == pytest.approx(1, abs=0.02)


def test_one_point_is_collapse():
    seen = found(np.ones((500, 32)) + 1e-4 * normal(500, 32))
    assert {
        seen[name].health for name in ("uniformity (G2)", "energy (a2)", "effective rank", "spread by dimension")
    } == {"bad"}
    assert "collapsed" in seen["uniformity (G2)"].sentence
    assert "constant" in seen["spread by dimension"].sentence


@pytest.mark.parametrize("dimensions", [8, 128])
def test_collapsed_is_what_the_alarm_calls_so(dimensions):
    """Features ever nearer to one point, or to a line through it."""
    told = []
    for width in np.geomspace(1e-3, 3, 25):
        for shape in ((400, dimensions), (400, 1)):
            x = np.ones((400, dimensions)) + width * normal(*shape) * np.linspace(0, 2, dimensions)
            features = torch.from_numpy(x).float()
            seen = SpreadMonitor(1, lambda pair=(features, features): [pair], torch.float32)(torch.nn.Identity())
            sentences = [found(x)[name].sentence for name in ("uniformity (G2)", "effective rank")]
            told.append(any("collapse" in sentence for sentence in sentences))
            assert told[-1] == is_collapsed(seen), (width, shape, seen, sentences)
    assert 0.2 < np.mean(told) < 0.8
    crowded = np.ones((400, 128)) + 0.15 * normal(400, 128)
    assert found(crowded)["uniformity (G2)"].value == pytest.approx(-0.09, abs=0.03)
    assert found(crowded)["uniformity (G2)"].health == "bad"
    assert "very crowded" in found(crowded)["uniformity (G2)"].sentence


def test_a_few_directions_are_very_narrow():
    seen = found(normal(2000, 2) @ normal(2, 256))
    assert seen["effective rank"].health == "bad"
    assert seen["effective rank"].value < 2.5
    assert "very narrow" in seen["effective rank"].sentence
    assert seen["uniformity (G2)"].health == "good"  # which does not see it


def test_a_pair_of_copies_is_told_and_leaves_the_energy_as_it_is():
    x = normal(400, 128)
    alone, beside = found(x), found(np.concatenate([x, x[:1]]))
    energy = beside["energy (a2)"]
    assert energy.value == pytest.approx(alone["energy (a2)"].value, rel=1e-5)
    assert (energy.health, beside["copies"].health) == ("good", "weak")
    many = found(np.concatenate([x[:5]] * 80))
    assert (many["energy (a2)"].health, many["copies"].health) == ("bad", "bad")


def test_copies_and_rows_of_zeros_are_told():
    x = normal(100, 8)
    x[:20], x[30] = x[20], 0
    seen = found(x)
    assert seen["zero rows"].value == 1
    assert seen["copies"].value == pytest.approx(100 * 20 / 99)


def test_rows_of_zeros_do_not_count_as_points():
    """They would lie at right angles to everything: spread out."""
    x = np.concatenate([np.ones((50, 8)) + 1e-4 * normal(50, 8), np.zeros((50, 8))])
    seen, alone = found(x), found(x[:50])
    assert {name: finding for name, finding in seen.items() if name != "zero rows"} == alone
    assert "the other findings are about the other rows" in seen["zero rows"].sentence
    nothing = found(np.zeros((50, 8)))
    assert [(f.name, f.health, f.sentence) for f in nothing.values()] == [
        ("zero rows", "bad", "collapsed: fewer than two rows have a direction")
    ]


def test_all_rows_count_for_moments_and_a_sample_for_pairs(monkeypatch):
    """Against torch on the whole; the interval of the sample holds what all pairs have."""
    monkeypatch.setattr(clouds, "ALL_PAIRS", 100)
    monkeypatch.setattr(clouds, "GROUP", 200)
    x = normal(5000, 8) + 0.5
    cloud = cloud_of(x)
    assert (cloud.rows, len(cloud.sample), cloud.sampled) == (5000, 1600, True)
    points = torch.nn.functional.normalize(torch.from_numpy(x))
    torch.testing.assert_close(cloud.std, points.std(0, correction=0), atol=1e-6, rtol=1e-5)
    assert len({tuple(row) for row in cloud.sample.tolist()}) == 1600  # none twice
    for measure in (uniformity, lambda p: hyperspherical_energy(p, 1, "geodesic")):
        sampled, exact = cloud.measure(measure), float(measure(points))
        assert sampled.half_width is not None
        assert abs(sampled.mean - exact) < 2 * sampled.half_width < 0.1


def test_rank_me_is_the_entropy_of_the_singular_values():
    x = torch.from_numpy(normal(40, 6)) * torch.tensor([5.0, 3.0, 1.0, 0.1, 0.0, 0.0])
    values = np.linalg.svd(x.numpy(), compute_uv=False)
    share = values / values.sum() + 1e-7
    assert float(rankme(x)) == pytest.approx(math.exp(-(share * np.log(share)).sum()))


def test_spread_of_known_points():
    assert float(spread(torch.eye(4).repeat(1000, 1))) == pytest.approx(math.sqrt(3 / 16) * 2, rel=1e-3)
    assert float(spread(torch.ones(10, 4))) == pytest.approx(0, abs=1e-6)


def test_more_dimensions_are_seen_along_the_principal_ones():
    angle = torch.linspace(0, 2 * math.pi, 101)[:-1]
    flat = torch.stack([angle.cos(), angle.sin()], dim=1)
    torch.testing.assert_close(on_the_circle(flat), flat)
    rotation = torch.linalg.qr(torch.from_numpy(normal(5, 5))).Q.float()
    seen = on_the_circle(torch.cat([flat * torch.tensor([1.0, 0.5]), torch.zeros(100, 3)], dim=1) @ rotation)
    torch.testing.assert_close(seen.norm(dim=1), torch.ones(100))  # nothing is lost
    x = torch.from_numpy(normal(30, 31)).float()
    few, many = on_the_circle(x), on_the_circle(torch.cat([x, x]))[:30]  # by the products of points, of dimensions
    torch.testing.assert_close(few.abs(), many.abs(), rtol=1e-4, atol=1e-5)
    assert found(flat.numpy())["density on the circle"].value == pytest.approx(1, abs=0.01)


def test_views_of_different_images_are_all_of_them_in_any_order():
    generator = torch.Generator().manual_seed(0)
    classes = torch.randn(10, 16, generator=generator).repeat_interleave(30, 0)
    one, other = (classes + 0.2 * torch.randn(300, 16, generator=generator) for _ in range(2))
    x, y = (torch.nn.functional.normalize(side.double()) for side in (one, other))
    apart = torch.cdist(x, y).square()[~torch.eye(300, dtype=torch.bool)].mean().item()
    for order in (torch.arange(300), torch.randperm(300, generator=generator)):
        assert f"{apart:.3g} unrelated" in alignment_finding(one[order], other[order]).against


@pytest.mark.parametrize("degrees", [0.25, 7.75, -172.0])
def test_the_peak_on_the_circle_is_the_same_wherever_it_is(degrees):
    angle = torch.deg2rad(torch.tensor(degrees)) + 1e-3 * torch.randn(500, generator=torch.Generator().manual_seed(0))
    points = torch.stack([angle.cos(), angle.sin()], dim=1)
    peak = findings_of(summarize(of_array(points.numpy(), "points")))[-1]
    assert peak.name == "density on the circle"
    # of one von Mises kernel with κ = 50, times 2π: exp(κ) / I₀(κ)
    assert peak.value == pytest.approx(1 / torch.special.i0e(torch.tensor(50.0)).item(), rel=0.01)
