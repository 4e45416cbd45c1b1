import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import hypersphere as hs
from hypersphere.losses import SigregLoss
from hypersphere.losses.spread import random_directions
from hypersphere.sphere import pairwise
from hypersphere.sphere.pairwise import nearest
from hypersphere.sphere.potentials import floor
from tests.sphere import reference


def points(n=7, d=4, **options):
    return torch.randn(n, d, dtype=torch.float64, **options)


ALL = [hs.variance_covariance, hs.koleo, lambda x: hs.sigreg(x, directions=5), hs.losses.spherical_mmd]
NAMES = ["variance_covariance", "koleo", "sigreg", "spherical_mmd"]
EACH = pytest.mark.parametrize("loss", ALL, ids=NAMES)


def variance_covariance(x, gamma):
    """Both terms, by loops over dimensions."""
    n, d = x.shape
    columns = [column - column.sum() / n for column in x.T]
    hinge = sum(max(0.0, gamma - math.sqrt(float((c * c).sum()) / (n - 1) + 1e-4)) for c in columns) / d
    pairs = [(a * b).sum() / (n - 1) for i, a in enumerate(columns) for j, b in enumerate(columns) if i != j]
    return hinge, sum(float(p) ** 2 for p in pairs) / d


@pytest.mark.parametrize("gamma", [0.5, 1.0, 3.0])
def test_variance_and_covariance_are_vicregs(gamma):
    x = points() * torch.tensor([0.3, 1.0, 2.0, 0.9], dtype=torch.float64) + 5
    hinge, others = variance_covariance(x, gamma)
    assert hs.variance_covariance(x, 2.0, 3.0, gamma).item() == pytest.approx(2 * hinge + 3 * others)
    assert hs.variance_covariance(x, gamma=gamma).item() == pytest.approx(hinge + others / 25)
    x.requires_grad_()
    assert gradcheck(lambda x: hs.variance_covariance(x, gamma=gamma), (x,))


def test_white_points_have_neither_variance_nor_covariance_to_mend():
    x = torch.linalg.qr(torch.cat([torch.ones(30, 1, dtype=torch.float64), points(30, 6)], dim=1)).Q[:, 1:]
    assert hs.variance_covariance(x * math.sqrt(29)).item() == pytest.approx(0, abs=1e-12)
    assert hs.variance_covariance(x * 0).item() == pytest.approx(0.99)


def koleo(x):
    x = x / x.norm(dim=1, keepdim=True)
    nearest = [min(float((a - b).norm()) for j, b in enumerate(x) if j != i) for i, a in enumerate(x)]
    return -sum(map(math.log, nearest)) / len(x)


def test_koleo_is_the_mean_log_of_the_nearest_distance():
    x = points()
    assert hs.koleo(x).item() == pytest.approx(koleo(x))
    assert hs.koleo(3 * x).item() == pytest.approx(koleo(x))
    x.requires_grad_()
    assert gradcheck(hs.koleo, (x,))


@pytest.mark.parametrize("n", [2, 5, 12])
def test_koleo_on_the_circle_and_of_a_simplex(n):
    assert hs.koleo(reference.circle(n)).item() == pytest.approx(-math.log(2 * math.sin(math.pi / n)))
    assert hs.koleo(reference.simplex(n)).item() == pytest.approx(-math.log(math.sqrt(2 + 2 / (n - 1))))


@pytest.mark.parametrize("tile", [1, 4, 7, 19, 64])
def test_the_nearest_is_found_in_any_tiles(tile):
    x = points(19, 3)
    x = x / x.norm(dim=1, keepdim=True)
    assert torch.equal(nearest(x, tile=tile), torch.cdist(x, x).fill_diagonal_(9).argmin(1))


def test_the_first_of_several_nearest_is_taken():
    x = torch.eye(4)
    assert nearest(x, tile=2).tolist() == [1, 0, 0, 0]


def test_koleo_of_near_duplicates_repels_and_of_duplicates_is_finite():
    least = floor(torch.float32)
    for angle in (1.0, 1e-2, 2 * least, 0.3 * least, 0.0):
        x = torch.tensor([[1.0, 0.0], [math.cos(angle), math.sin(angle)]], requires_grad=True)
        value = hs.koleo(x)
        value.backward()
        if angle > least:
            assert value.item() == pytest.approx(-math.log(2 * math.sin(angle / 2)), rel=1e-3)
            assert x.grad[0, 1].item() == pytest.approx(0.5 / math.tan(angle / 2), rel=1e-2)
        else:
            assert value.item() == pytest.approx(-math.log(least) + (1 - (angle / least) ** 2) / 2, rel=1e-3)
            assert x.grad[0, 1].item() == pytest.approx(angle / least**2, rel=1e-2)


class Largest(TorchDispatchMode):
    """Of all tensors made inside: the number of elements."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            self.elements = max(self.elements, tensor.numel() if isinstance(tensor, torch.Tensor) else 0)
        return made


def test_koleo_of_many_points_in_linear_memory():
    """4000² cosines would be 16 million numbers; a tile has 512²."""
    x = torch.randn(4000, 8, requires_grad=True)
    with Largest() as largest:
        hs.koleo(x).backward()
    assert largest.elements == x.numel()
    with Largest() as inside:  # of the operator, as it is written
        pairwise._nearest._init_fn(x.detach(), pairwise._tile_size(x))
    assert inside.elements == 512**2


def epps_pulley(u):
    """In closed form, by ∫ cos(tz) e^(−pt²/2) dt = √(2π/p) e^(−z²/2p)."""
    n = len(u)
    own = sum(math.exp(-((a - b) ** 2) / 2) for a in u for b in u) * math.sqrt(2 * math.pi) / n
    cross = sum(math.exp(-(a**2) / 4) for a in u) * math.sqrt(math.pi)
    return own - 2 * cross + n * math.sqrt(2 * math.pi / 3)


@pytest.mark.parametrize(("n", "d"), [(7, 4), (1, 3), (6, 1)])
def test_sigreg_is_the_mean_epps_pulley_statistic(n, d):
    x = points(n, d)
    vectors = random_directions(5, x, seed=3, step=2)
    wanted = sum(epps_pulley([float(v) for v in x @ a]) for a in vectors) / 5
    assert hs.sigreg(x, 5, seed=3, step=2).item() == pytest.approx(wanted, rel=1e-4)  # the quadrature's error
    x.requires_grad_()
    assert gradcheck(lambda x: hs.sigreg(x, 5), (x,))


def test_sigreg_is_low_for_normal_points_alone():
    """Its expectation for them, in closed form, is √2π − √(2π/3); others have values that grow with N."""
    x = torch.randn(2000, 8)
    expected = math.sqrt(2 * math.pi) - math.sqrt(2 * math.pi / 3)
    assert hs.sigreg(x).item() == pytest.approx(expected, rel=0.25)
    for other in (2 * x, x + 1, torch.randn(2000, 8) * x, x * 0):
        assert hs.sigreg(other).item() > 10 * expected


def test_directions_are_unit_even_and_those_of_their_seed_and_step():
    x = torch.empty(0, 6)
    vectors = random_directions(4000, x, seed=1, step=5)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(4000))
    assert vectors.mean(0).abs().max() < 0.03
    assert (vectors.T @ vectors / 4000 - torch.eye(6) / 6).abs().max() < 0.02
    assert torch.equal(vectors, random_directions(4000, x, seed=1, step=torch.tensor(5)))
    for seed, step in ((1, 6), (2, 5)):
        assert not torch.equal(vectors, random_directions(4000, x, seed=seed, step=step))


def test_sketching_draws_anew_at_each_call_and_resumes_where_it_was():
    x, sketching = points(), SigregLoss(directions=3, seed=4)
    values = [sketching(x) for _ in range(3)]
    assert values == [hs.sigreg(x, 3, seed=4, step=step) for step in range(3)]
    resumed = SigregLoss(directions=3, seed=4)
    resumed.load_state_dict(sketching.state_dict())
    assert resumed(x) == hs.sigreg(x, 3, seed=4, step=3)


@EACH
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(loss, dtype):
    x = torch.randn(9, 5).to(dtype).requires_grad_()
    value = loss(x)
    assert value.dtype == torch.float32
    assert value == loss(x.float())
    value.backward()
    torch.testing.assert_close(
        x.grad, torch.autograd.grad(loss(wide := x.detach().float().requires_grad_()), wide)[0].to(dtype)
    )


@EACH
def test_autocast_changes_nothing(loss):
    x = torch.randn(9, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = loss(x)
    assert inside == loss(x)


@EACH
def test_duplicates_and_zero_rows_have_finite_values_and_gradients(loss):
    for x in (torch.ones(6, 3), torch.zeros(6, 3), torch.cat([torch.randn(3, 3), torch.zeros(2, 3), torch.ones(2, 3)])):
        x.requires_grad_()
        value = loss(x)
        value.backward()
        assert value.isfinite()
        assert x.grad.isfinite().all()
        if loss is hs.koleo:
            assert (x.grad[x.detach().norm(dim=1) == 0] == 0).all()
        if loss is not ALL[2] and (x == x[0]).all():
            assert (x.grad == 0).all()


@EACH
def test_what_is_not_a_number_stays_so(loss):
    x = torch.randn(5, 3)
    x[1, 2] = math.nan
    assert loss(x).isnan()


@EACH
def test_one_dimension(loss):
    x = torch.tensor([[1.0], [-2.0], [0.5]], requires_grad=True)
    loss(x).backward()
    assert x.grad.isfinite().all()


@EACH
def test_compiles_as_one_graph(loss):
    x = torch.randn(30, 8, requires_grad=True)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    (wanted,), (found,) = (torch.autograd.grad(f(x), x) for f in (loss, compiled))
    torch.testing.assert_close(found, wanted)


def test_sketching_compiles_and_still_counts():
    x, sketching = torch.randn(9, 5), SigregLoss(directions=3)
    compiled = torch.compile(sketching, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(
        torch.stack([compiled(x), compiled(x)]), torch.stack([hs.sigreg(x, 3, step=s) for s in (0, 1)])
    )
    assert sketching.calls == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: hs.koleo(x[:1]), "two points"),
        (lambda x: hs.variance_covariance(x[:1]), "two points"),
        (lambda x: hs.sigreg(x[:0]), "one point"),
        (lambda x: hs.sigreg(x, directions=0), "directions must be a whole number of at least 1"),
        (lambda x: hs.variance_covariance(x, gamma=-1), "gamma must be"),
        (lambda x: hs.variance_covariance(x, covariance=math.nan), "covariance must be"),
        (lambda x: hs.koleo(x[0]), "points × dimensions"),
        (lambda x: hs.variance_covariance(x.long()), "floating point"),
        (lambda x: hs.sigreg(x[None]), "points × dimensions"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.randn(4, 3))
