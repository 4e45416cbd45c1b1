import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

import hypersphere as hs
from tests.sphere import reference

ENERGIES = [("euclidean", reference.riesz), ("geodesic", reference.geodesic)]


def points(n=6, d=4, **options):
    return torch.randn(n, d, dtype=torch.float64, **options)


@pytest.mark.parametrize("half_space", [False, True])
@pytest.mark.parametrize("s", [0.0, 0.5, 1.0, 2.0, 3.7])
@pytest.mark.parametrize(("metric", "potential"), ENERGIES)
def test_energy_is_the_sum_over_ordered_pairs(metric, potential, s, half_space):
    w = points()
    wanted = reference.pair_sum(w, potential(s), half_space)
    n = 12 if half_space else 6
    found = hs.hyperspherical_energy(w, s, metric, half_space, reduction="sum")
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(hs.hyperspherical_energy(w, s, metric, half_space), wanted / (n * (n - 1)))


@pytest.mark.parametrize("half_space", [False, True])
@pytest.mark.parametrize("s", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("metric", ["euclidean", "geodesic"])
def test_energy_gradient(metric, s, half_space):
    assert gradcheck(lambda w: hs.hyperspherical_energy(w, s, metric, half_space), (points(requires_grad=True),))


@pytest.mark.parametrize("n", [3, 4, 9])
def test_energy_of_a_simplex(n):
    cosine = -1 / (n - 1)
    w = reference.simplex(n)
    assert hs.hyperspherical_energy(w, 2.0).item() == pytest.approx(1 / (2 - 2 * cosine))
    assert hs.hyperspherical_energy(w, 1.0, "geodesic").item() == pytest.approx(1 / math.acos(cosine))
    assert hs.hyperspherical_energy(w, 0.0).item() == pytest.approx(-0.5 * math.log(2 - 2 * cosine))


def test_energy_of_an_orthonormal_frame():
    frame = torch.linalg.qr(points(7, 7)).Q
    assert hs.hyperspherical_energy(frame, 2.0).item() == pytest.approx(1 / 2)
    assert hs.hyperspherical_energy(frame, 2.0, "geodesic").item() == pytest.approx((2 / math.pi) ** 2)


@pytest.mark.parametrize("n", [2, 5, 12])
def test_energy_of_points_on_the_circle(n):
    w = reference.circle(n)
    chords = [2 * math.sin(math.pi * k / n) for k in range(1, n)]
    arcs = [2 * math.pi * min(k, n - k) / n for k in range(1, n)]
    for s in (1.0, 2.0):
        assert hs.hyperspherical_energy(w, s).item() == pytest.approx(sum(c**-s for c in chords) / (n - 1))
        assert hs.hyperspherical_energy(w, s, "geodesic").item() == pytest.approx(sum(a**-s for a in arcs) / (n - 1))


@pytest.mark.parametrize("t", [0.5, 2.0, 60.0])
def test_uniformity_is_the_log_of_the_mean_gaussian(t):
    x = points()
    wanted = (reference.pair_sum(x, reference.gaussian(t)) / 30).log()
    torch.testing.assert_close(hs.uniformity(x, t), wanted)
    x.requires_grad_()
    assert gradcheck(lambda x: hs.uniformity(x, t), (x,))


def test_uniformity_of_a_large_t_neither_underflows_nor_loses_its_gradient():
    x = torch.randn(50, 64, requires_grad=True)
    value = hs.uniformity(x, t=500.0)
    value.backward()
    assert value.isfinite()
    assert x.grad.isfinite().all()
    assert (x.grad.norm(dim=1) > 0).any()


def test_alignment_is_the_mean_power_of_the_distance():
    x, y = points(), points()
    distance = (x / x.norm(dim=1, keepdim=True) - y / y.norm(dim=1, keepdim=True)).norm(dim=1)
    for alpha in (0.5, 1.0, 2.0, 3.0):
        torch.testing.assert_close(hs.alignment(x, y, alpha), (distance**alpha).mean())
    x.requires_grad_()
    hs.alignment(x, x.detach(), 0.5).backward()
    assert (x.grad == 0).all()


@pytest.mark.parametrize(("n", "d"), [(60, 12), (12, 60), (400, 64)])
def test_effective_rank_is_accurate_in_single_precision(n, d):
    """Without a gradient, it comes from eigenvalues: near that of an SVD in float64, also if the rank is low."""
    for columns in (d, 3):
        x = (torch.randn(n, columns) * torch.logspace(0, -3, columns)) @ torch.randn(columns, d)
        wanted = hs.effective_rank(x.double()).item()
        assert hs.effective_rank(x).item() == pytest.approx(wanted, rel=1e-4)
        assert hs.effective_rank(x.clone().requires_grad_()).item() == pytest.approx(wanted, rel=1e-3)


def test_effective_rank_by_svd_and_at_its_ends():
    x = points(20, 8)
    singular = torch.linalg.svdvals(x / x.norm(dim=1, keepdim=True))
    share = singular / singular.sum()
    torch.testing.assert_close(hs.effective_rank(x), (-(share * share.log()).sum()).exp())
    assert hs.effective_rank(torch.eye(5)).item() == pytest.approx(5)
    assert hs.effective_rank(torch.ones(9, 5)).item() == pytest.approx(1, abs=1e-3)


def test_the_rank_has_a_gradient_where_a_singular_value_is_zero():
    x = torch.zeros(8, 4)
    x[:, :2] = torch.randn(8, 2)
    x.requires_grad_()
    hs.effective_rank(x).backward()
    wanted = x.detach()[:, :2].clone().requires_grad_()
    hs.effective_rank(wanted).backward()
    torch.testing.assert_close(x.grad[:, :2], wanted.grad)
    assert x.grad.isfinite().all()


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 12), d=st.integers(2, 9), s=st.floats(0, 6), metric=st.sampled_from(["euclidean", "geodesic"]),
    half_space=st.booleans(), seed=st.integers(0, 2**31),
)  # fmt: skip
def test_energy_ignores_scale_order_and_rotation(n, d, s, metric, half_space, seed):
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(n, d, generator=generator, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
    scale = torch.rand(n, 1, generator=generator, dtype=torch.float64) + 0.1
    order = torch.randperm(n, generator=generator)
    energy = hs.hyperspherical_energy(w, s, metric, half_space)
    torch.testing.assert_close(hs.hyperspherical_energy((w * scale)[order] @ rotation, s, metric, half_space), energy)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(2, 40), d=st.integers(2, 20), seed=st.integers(0, 2**31))
def test_bounds(n, d, seed):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed))
    assert -8 - 1e-5 <= hs.uniformity(x).item() <= 1e-6
    assert 1 - 1e-5 <= hs.effective_rank(x).item() <= min(n, d) + 1e-3
    assert hs.hyperspherical_energy(x, 2.0).item() >= 1 / 4 - 1e-6


@pytest.mark.parametrize("s", [0.0, 2.0])
def test_one_point_has_no_energy(s):
    w = torch.randn(1, 3, requires_grad=True)
    energy = hs.hyperspherical_energy(w, s)
    energy.backward()
    assert energy.item() == 0
    assert (w.grad == 0).all()


def test_measures_that_need_pairs_refuse_one_point():
    one = torch.randn(1, 3)
    with pytest.raises(ValueError, match="two points"):
        hs.uniformity(one)
    with pytest.raises(ValueError, match="two images"):
        hs.nt_xent(one, one)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: hs.hyperspherical_energy(w, -1.0), "power s"),
        (lambda w: hs.hyperspherical_energy(w, math.nan), "power s"),
        (lambda w: hs.hyperspherical_energy(w, metric="manhattan"), "manhattan"),
        (lambda w: hs.hyperspherical_energy(w, reduction="max"), "reduction"),
        (lambda w: hs.hyperspherical_energy(w[0]), "points × dimensions"),
        (lambda w: hs.hyperspherical_energy(w.long()), "floating point"),
        (lambda w: hs.uniformity(w, t=0), "t must be"),
        (lambda w: hs.alignment(w, w[:2]), "pair up"),
        (lambda w: hs.nt_xent(w, w, temperature=0), "temperature"),
        (lambda w: hs.nt_xent(w, w[:, :2]), "same shape"),
        (lambda w: hs.info_nce(w, w, negatives=w[:, :2]), "negatives must have 3 dimensions, as the keys do, got 2"),
        (lambda w: hs.info_nce(w, w, negatives=w[0]), "negatives must be points × dimensions"),
        (lambda w: hs.uniformity(w, t="2"), "t must be a number, got str"),
        (lambda w: hs.nt_xent(w, w, None), "temperature must be a number, got NoneType"),
        (lambda w: hs.hyperspherical_energy(w, "2"), "the power s must be a number, got str"),
        (lambda w: hs.alignment(w[:0], w[:0]), "at least one pair"),
        (lambda w: hs.byol_loss(w[:0], w[:0]), "at least one pair"),
        (lambda w: hs.effective_rank(w[:0]), "at least one point"),
        (lambda w: hs.uniformity(w.numpy()), "x must be a tensor, got ndarray"),
        (lambda w: hs.nt_xent(w.numpy(), w), "the first input must be a tensor, got ndarray"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(torch.randn(4, 3))


def test_the_rank_of_what_are_no_numbers_is_none():
    assert hs.effective_rank(torch.full((4, 3), torch.nan)).isnan()
