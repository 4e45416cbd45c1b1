"""Measures without labels: against closed forms, literal loops, scipy and scikit-learn."""

import math
from importlib import import_module

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize

from hypersphere.sphere import (
    alpha_req,
    cluster_learnability,
    effective_rank,
    intrinsic_dimension,
    lidar,
    rankme,
    spherical_kmeans,
    wasserstein_uniformity,
)
from hypersphere.util.random_numbers import LEARNABILITY, permutation

OF_POINTS = (rankme, alpha_req, wasserstein_uniformity, cluster_learnability, intrinsic_dimension)


def frame(n, d, *, centred=False, seed=0):
    """N × D with orthonormal columns, if wanted of mean 0."""
    x = np.random.default_rng(seed).normal(size=(n, d))
    return np.linalg.qr(x - x.mean(0) if centred else x)[0]


def with_spectrum(values, n, *, centred=False):
    """N × D with these singular values, in random directions."""
    d = len(values)
    return torch.from_numpy(frame(n, d, centred=centred) * values @ frame(d, d, seed=1))


def entropy_of(values, eps):
    shares = [value / sum(values) + eps for value in values]
    return math.exp(-sum(share * math.log(share) for share in shares))


def test_rankme_of_known_singular_values():
    values = np.array([5.0, 3.0, 1.0, 0.1, 0.01])
    for eps in (1e-7, 1e-3):
        assert float(rankme(with_spectrum(values, 40), eps)) == pytest.approx(entropy_of(values, eps))
    assert float(rankme(torch.eye(6))) == pytest.approx(6, abs=1e-4)


def test_rankme_neither_normalizes_nor_centres():
    x = torch.diag(torch.tensor([100.0, 1.0, 1.0]))
    assert float(rankme(x)) < 1.2
    assert float(effective_rank(x)) == pytest.approx(3)
    assert float(rankme(torch.randn(50, 4) + 1000)) < 1.1


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.5])
def test_alpha_is_the_exponent_between_ranks_11_and_100(alpha):
    """What comes before and after decays otherwise."""
    rank = np.arange(1, 141.0)
    values = rank**-alpha
    values[:10], values[100:] = values[10] * np.linspace(1000, 2, 10), values[99] * np.linspace(0.9, 0.1, 40)
    found = alpha_req(with_spectrum(np.sqrt(values), 400, centred=True) + 7)
    assert float(found) == pytest.approx(alpha, abs=1e-6)


@pytest.mark.parametrize(("dimensions", "positive"), [(99, 99), (20, 20), (150, 12), (30, 2)])
def test_of_fewer_eigenvalues_all_positive_ones_are_fitted(dimensions, positive):
    """As numpy fits a line with weights 1 / rank; in single precision, in which zeros are rounding."""
    values = np.sort(np.random.default_rng(0).uniform(0.01, 1, positive))[::-1]
    x = with_spectrum(np.sqrt([*values, *[0.0] * (dimensions - positive)]), 300, centred=True)
    rank = np.arange(1, positive + 1.0)
    slope, _ = np.polyfit(np.log(rank), np.log(values), 1, w=rank**-0.5)
    assert float(alpha_req(x.float())) == pytest.approx(-slope, abs=1e-4)


def test_alpha_of_isotropic_points_is_small():
    assert 0 < float(alpha_req(torch.randn(10_000, 100))) < 0.2  # 0 but for the noise of so many points


@pytest.mark.parametrize(("n", "d"), [(200, 6), (5, 12), (40, 2)])
def test_wasserstein_uniformity_is_the_distance_of_two_normal_laws(n, d):
    """Of any two: |m₁ − m₂|² + tr(S₁ + S₂ − 2 (S₂^½ S₁ S₂^½)^½)."""
    x = np.random.default_rng(0).normal(size=(n, d)) * np.arange(1, d + 1) + 0.5
    points = normalize(x)
    mean, covariance = points.mean(0), np.cov(points.T, bias=True)
    root = scipy.linalg.sqrtm(np.eye(d) / d)
    mixed = scipy.linalg.sqrtm(root @ covariance @ root).real
    wanted = mean @ mean + np.trace(covariance + np.eye(d) / d - 2 * mixed)
    assert float(wasserstein_uniformity(torch.from_numpy(x))) == pytest.approx(math.sqrt(wanted), abs=1e-6)


def test_wasserstein_uniformity_at_its_ends():
    even = torch.cat([torch.eye(5), -torch.eye(5)])
    assert float(wasserstein_uniformity(3 * even)) == pytest.approx(0, abs=1e-6)
    assert float(wasserstein_uniformity(torch.ones(9, 5))) == pytest.approx(math.sqrt(2))
    flat = torch.nn.functional.pad(even, (0, 5))  # the other half of the dimensions is constant
    assert float(wasserstein_uniformity(flat)) == pytest.approx(math.sqrt(2 - math.sqrt(2)), abs=1e-6)


def literal_lidar(x, delta, eps):
    n, q, d = x.shape
    means = [sum(x[i, j] for j in range(q)) / q for i in range(n)]
    grand = sum(means) / n
    between = sum(np.outer(mean - grand, mean - grand) for mean in means) / n
    within = sum(np.outer(x[i, j] - means[i], x[i, j] - means[i]) for i in range(n) for j in range(q)) / (n * q)
    white = np.linalg.inv(scipy.linalg.sqrtm(within + delta * np.eye(d)))
    return entropy_of(np.linalg.eigvalsh(white @ between @ white).clip(0), eps)


@pytest.mark.parametrize(("n", "q", "d"), [(12, 3, 4), (5, 4, 9), (30, 2, 2)])
@pytest.mark.parametrize(("delta", "eps"), [(1e-4, 1e-7), (0.5, 1e-3)])
def test_lidar_is_its_definition(n, q, d, delta, eps):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 1, d)) * np.arange(1, d + 1) + rng.normal(size=(n, q, d)) * np.arange(d, 0, -1) ** 2
    assert float(lidar(torch.from_numpy(x), delta, eps)) == pytest.approx(literal_lidar(x, delta, eps), rel=1e-6)


def test_lidar_counts_directions_that_views_do_not_move():
    """Images differ alike in six directions; in three of them views of an image differ a hundred times as much."""
    rng = np.random.default_rng(0)
    images = frame(60, 6, centred=True)[:, None] * math.sqrt(60)
    views = rng.normal(size=(60, 20, 6))
    views -= views.mean(1, keepdims=True)
    even, moved = (torch.from_numpy(images + 0.1 * views * scale) for scale in (np.ones(6), np.array([1.0, 100] * 3)))
    assert float(lidar(even)) == pytest.approx(6, abs=0.1)
    assert float(lidar(moved)) == pytest.approx(3, abs=0.1)
    assert float(rankme(moved.flatten(0, 1))) > 3.1


def clusters_of(x, count, seed=0):
    order = permutation(len(x), seed=seed, stream=LEARNABILITY)
    return spherical_kmeans(x, x[order[:count]])[1].numpy()


@pytest.mark.parametrize(("clusters", "used"), [(None, 17), (5, 5), (300, 300), (1000, 300)])
def test_cluster_learnability_is_the_accuracy_of_one_neighbour(clusters, used):
    x = torch.randn(300, 8) + 1
    label = clusters_of(x, used)
    _, place = NearestNeighbors(n_neighbors=1, metric="cosine").fit(x.numpy()).kneighbors()  # of others alone
    wanted = (label[place[:, 0]] == label).mean()
    assert float(cluster_learnability(x, clusters)) == pytest.approx(wanted)
    assert 0 < wanted < 1 or used == 300
    assert float(cluster_learnability(x.double(), clusters)) == pytest.approx(wanted)


def test_cluster_learnability_of_separate_clusters_is_1_and_depends_on_its_seed_alone():
    x = torch.randn(300, 8)
    found = {float(cluster_learnability(x, seed=seed)) for seed in range(4)}
    assert len(found) > 1
    assert float(cluster_learnability(x)) == float(cluster_learnability(100 * x)) in found
    apart = torch.eye(8)[torch.arange(300) % 8] + 0.01 * x
    assert float(cluster_learnability(apart, 8)) == 1
    assert float(cluster_learnability(apart)) < 1


def literal_dimension(x):
    points = normalize(x)
    distance, _ = NearestNeighbors(n_neighbors=2, algorithm="brute").fit(points).kneighbors()
    ratio = sorted(far / near for near, far in distance if near > 0)
    n, kept = len(ratio), int(0.9 * len(ratio))
    pairs = [(math.log(ratio[i]), -math.log(1 - (i + 1) / n)) for i in range(kept)]
    return sum(a * b for a, b in pairs) / sum(a * a for a, _ in pairs)


@pytest.mark.parametrize("at_once", [1, 7 * 200, 2**22])
def test_intrinsic_dimension_is_its_definition(at_once, monkeypatch):
    monkeypatch.setattr(import_module("hypersphere.sphere.clid"), "CHUNK_ELEMENTS", at_once)
    x = np.random.default_rng(0).normal(size=(200, 6)) * np.arange(1, 7)
    x[150:160] = x[:10]  # copies do not count
    assert float(intrinsic_dimension(torch.from_numpy(x))) == pytest.approx(literal_dimension(x), rel=1e-6)


@pytest.mark.parametrize(("sphere", "dimensions"), [(2, 2), (3, 3), (3, 20), (6, 6)])
def test_intrinsic_dimension_of_an_even_spread(sphere, dimensions):
    """Over a sphere, in as many dimensions or in more: its own."""
    x = torch.randn(4000, sphere) @ torch.from_numpy(frame(dimensions, sphere)).float().T
    assert float(intrinsic_dimension(x)) == pytest.approx(sphere - 1, rel=0.08)


def test_intrinsic_dimension_of_crowded_points_is_theirs():
    """All within a thousandth of one direction: cosines in single precision are alike."""
    x = 1e-3 * torch.randn(3000, 2) @ torch.from_numpy(frame(8, 2)).float().T + torch.ones(8)
    assert float(intrinsic_dimension(x)) == pytest.approx(2, rel=0.1)


DEGENERATE = {
    "collapsed": torch.ones(50, 8),
    "collapsed but for rounding": torch.full((50, 8), 0.1) + 1e-8 * torch.randn(50, 8),
    "rank 1": torch.randn(50, 1) @ torch.randn(1, 8),
    "zeros": torch.zeros(50, 8),
    "some zeros": torch.cat([torch.zeros(20, 8), torch.randn(30, 8)]),
    "two dimensions": torch.randn(50, 2),
    "one dimension": torch.randn(50, 1),
    "a simplex": torch.eye(5),
    "no point": torch.empty(0, 8),
    "one point": torch.randn(1, 8),
    "two points": torch.randn(2, 8),
    "three points": torch.randn(3, 8),
    "huge": 1e37 * torch.randn(50, 8),
    "tiny": 1e-38 * torch.randn(50, 8),
    "no number": torch.full((50, 8), math.nan),
    "infinite": torch.full((50, 8), math.inf),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_points_have_a_finite_value_or_none(name):
    x = DEGENERATE[name]
    found = {measure.__name__: float(measure(x)) for measure in OF_POINTS}
    found["lidar"] = float(lidar(x[:, None].expand(-1, 3, -1)))
    assert not any(math.isinf(value) for value in found.values()), found
    if name in ("no point", "no number", "infinite"):
        assert all(map(math.isnan, found.values())), found
    else:
        named = (found[key] for key in ("rankme", "wasserstein_uniformity", "lidar"))
        assert all(map(math.isfinite, named)), found


@pytest.mark.parametrize("name", ["collapsed", "zeros", "one point"])
def test_of_collapsed_points_ranks_are_one_and_differences_unknown(name):
    x = DEGENERATE[name]
    for rank in (rankme(x), effective_rank(x), effective_rank(x.double()), lidar(x[:, None].expand(-1, 3, -1))):
        assert float(rank) == pytest.approx(1, abs=1e-4)
    for measure in (cluster_learnability, alpha_req, intrinsic_dimension):
        assert math.isnan(float(measure(x)))


def test_half_precision_and_gradients():
    x = torch.randn(60, 8, requires_grad=True)
    for measure in OF_POINTS:
        value = measure(x)
        assert (value.shape, value.dtype, value.requires_grad) == ((), torch.float64, False)
        assert torch.equal(value, measure(x.detach()))
        assert float(measure(x.bfloat16())) == pytest.approx(float(measure(x.bfloat16().float())))
    outside = [measure(x) for measure in OF_POINTS]
    with torch.autocast("cpu", torch.bfloat16):
        assert [measure(x) for measure in OF_POINTS] == outside


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rankme(torch.ones(3)), "points × dimensions"),
        (lambda: intrinsic_dimension(torch.ones(3, 2, dtype=torch.long)), "floating point"),
        (lambda: lidar(torch.ones(3, 2)), "images × views × dimensions"),
        (lambda: lidar(torch.ones(3, 2, 2), delta=0), "delta must be above 0"),
        (lambda: cluster_learnability(torch.ones(3, 2), 0), "clusters must be at least 1"),
    ],
)
def test_what_has_no_measure_is_told(call, message):
    with pytest.raises(ValueError, match=message):
        call()
