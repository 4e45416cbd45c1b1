"""The pairwise kernels in Triton's interpreter, with small tiles, against the tiled reference; on a GPU as they are."""

import math
import mmap

import pytest
import torch

import hypersphere as hs
from hypersphere import kernels
from hypersphere.sphere import fused
from hypersphere.sphere.pairwise import pair_mean, row_logsumexp
from hypersphere.sphere.potentials import floor, near2
from hypersphere.sphere.unit import unit

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

from hypersphere.kernels import pairwise, pairwise_kernels, potentials  # noqa: E402
from hypersphere.kernels import pairwise_tiles as tiles  # noqa: E402

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
interpreted = pytest.mark.skipif(GPU, reason="for Triton's interpreter")
on_gpu = pytest.mark.skipif(not GPU, reason="needs a GPU")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy about what `where` discards

LAWS = [("riesz", 0.0), ("riesz", 2.0), ("riesz", 2.5), ("geodesic", 0.0), ("geodesic", 2.0), ("gaussian", 2.0)]


@pytest.fixture
def small_tiles(monkeypatch):
    """Blocks of 16 points and dimensions; sums over more than 16 points in parts."""
    for name, value in {"BLOCK": 16, "DEPTH": 16, "LARGEST": 64, "SLOPES": 1 << 10, "ROWS": 8}.items():
        monkeypatch.setattr(tiles, name, value)
    monkeypatch.setattr(pairwise_kernels, "BLOCK", tl.constexpr(16))
    monkeypatch.setattr(pairwise, "SLOPES", {"DEPTH": 8})
    monkeypatch.setattr(pairwise, "PULL", {"DEPTH": 8})
    monkeypatch.setattr(pairwise, "NEAR_CHUNK", 16)
    monkeypatch.setattr(tiles, "CHUNKS", (16, 32))
    plans = (tiles.layers_plan, tiles.pair_plan, tiles.log_sum_plan, tiles.finish_plan)
    for plan in plans:
        plan.cache_clear()
    yield
    for plan in plans:
        plan.cache_clear()


def by_kernels(weights, *law, half_space=False):
    weights = [w.clone(memory_format=torch.preserve_format).requires_grad_() for w in weights]
    means = fused.pair_means(weights, *law, half_space)
    means.sum().backward()
    return means.detach(), [w.grad for w in weights]


def by_reference(w, *law, half_space=False, dtype=torch.float32):
    w = w.to(dtype).flatten(1).requires_grad_()
    with kernels.without_kernels():
        mean = pair_mean(unit(w), *law, half_space=half_space)
    mean.backward()
    return mean.detach(), w.grad


def assert_alike(found, wanted, tolerance=1e-3):
    assert (found.double() - wanted.double()).norm() <= tolerance * wanted.double().norm()


def test_a_map_over_matrices_is_taken_by_the_reference(monkeypatch):
    """Kernels are given one matrix after the other, or several as they lie: no map goes through them."""
    monkeypatch.setattr(kernels, "runs_on", lambda x: True)
    x = torch.randn(2, 12, 5, requires_grad=True)
    found = torch.vmap(hs.hyperspherical_energy)(x)
    wanted = torch.stack([by_reference(one.detach(), "riesz", 2.0)[0] for one in x])
    torch.testing.assert_close(found, wanted)
    found.sum().backward()
    torch.testing.assert_close(x.grad, torch.stack([by_reference(one.detach(), "riesz", 2.0)[1] for one in x]))


@pytest.mark.parametrize("d", [3, 4, 6])
def test_few_close_neurons_have_exact_gradients(d, request):
    """Points about an angle of 0.2 apart, where the pull along a point is five times the rest of it."""
    if not GPU:
        request.getfixturevalue("small_tiles")
    centre = torch.randn(d)
    errors = []
    for _ in range(20):
        w = centre / centre.norm() + 0.15 * torch.randn(6, d) / d**0.5
        w = (torch.rand(6, 1) + 0.5) * w
        _, (found,) = by_kernels([w.to(DEVICE)], "geodesic", 2.0)
        _, wanted = by_reference(w, "geodesic", 2.0, dtype=torch.float64)
        errors.append((found.cpu() - wanted).abs().max() / wanted.abs().max())
    assert max(errors) < 5e-4


def test_steep_potentials_are_left_to_the_reference():
    assert all(fused.fits_float16(*law, half_space) for law in LAWS for half_space in (False, True))
    assert not any(fused.fits_float16(*law, False) for law in (("riesz", 12.0), ("gaussian", 12.0)))


def near_pair(angle, d, others=6):
    a, b = torch.linalg.qr(torch.randn(d, 2, dtype=torch.float64)).Q.T
    pair = torch.stack([3 * a, 0.7 * (math.cos(angle) * a + math.sin(angle) * b)])
    return torch.cat([torch.randn(others, d, dtype=torch.float64), pair]).roll(3, 0).float()


@interpreted
def test_angles_match_float64():
    @triton.jit
    def angles(gap2, out, N: tl.constexpr):
        at = tl.arange(0, N)
        tl.store(out + at, potentials.acute_angle(tl.load(gap2 + at)))

    gap2 = torch.cat([torch.linspace(0, 2, 3000), torch.logspace(-14, 0, 1096)])
    out = torch.empty_like(gap2)
    angles[(1,)](gap2, out, N=4096)
    wanted = 2 * torch.asin(gap2.double().sqrt() / 2)
    torch.testing.assert_close(out.double(), wanted, rtol=3e-7, atol=0)


@interpreted
@pytest.mark.parametrize("half_space", [False, True])
@pytest.mark.parametrize("law", LAWS)
def test_several_layers_match_the_reference(small_tiles, law, half_space):
    """Ragged sizes, tiles of both sizes; duplicates, near, opposite and zero rows, in one tile and across."""
    weights = [torch.randn(10, 3), torch.randn(21, 27)]
    w = weights[1]
    w[5], w[6], w[7], w[9] = 2 * w[20], w[19] + 1e-3 * w[6], 1e-2 * w[7] - w[8], 0
    means, gradients = by_kernels(weights, *law, half_space=half_space)
    for w, mean, gradient in zip(weights, means, gradients, strict=True):
        wanted, wanted_gradient = by_reference(w, *law, half_space=half_space)
        assert mean.item() == pytest.approx(wanted.item(), rel=1e-5)
        assert_alike(gradient, wanted_gradient)
    assert (gradients[1][9] == 0).all()


@interpreted
@pytest.mark.parametrize("shape", [(2, 1), (33, 20)])
def test_any_shape(small_tiles, shape):
    w = torch.randn(shape)
    (mean,), (gradient,) = by_kernels([w], "riesz", 1.0)
    wanted, wanted_gradient = by_reference(w, "riesz", 1.0)
    assert mean.item() == pytest.approx(wanted.item(), rel=1e-5)
    torch.testing.assert_close(gradient, wanted_gradient, rtol=1e-3, atol=1e-3 * wanted_gradient.abs().max().item())


@interpreted
@pytest.mark.parametrize("kind", ["riesz", "geodesic"])
def test_near_pairs_match_float64_above_the_documented_angle(small_tiles, kind):
    for angle in (1e-1, 1e-2, 1.1 * floor(torch.float32), math.pi - 1e-3):
        w = near_pair(angle, 40)
        (mean,), (gradient,) = by_kernels([w], kind, 2.0, half_space=angle > 3)
        wanted, wanted_gradient = by_reference(w, kind, 2.0, half_space=angle > 3, dtype=torch.float64)
        assert mean.item() == pytest.approx(wanted.item(), rel=0.01)
        assert_alike(gradient, wanted_gradient, 0.01)
    for angle in (1e-4, 1e-7):  # held at the floor: bounded, and repelling
        w = near_pair(angle, 40, others=0)
        w[1] *= w[0].norm() / w[1].norm()
        _, (gradient,) = by_kernels([w], kind, 2.0)
        apart = (w[0] - w[1]).double()
        assert -gradient[0].double() @ apart > 0 > -gradient[1].double() @ apart
        assert gradient[0].norm() * w[0].norm() < 2 * floor(torch.float32) ** -3


@interpreted
@pytest.mark.parametrize("half_space", [False, True])
@pytest.mark.parametrize("kind", ["riesz", "geodesic"])
def test_duplicates_and_opposites_have_finite_energy_and_no_gradient(small_tiles, kind, half_space):
    w = torch.randn(1, 8).repeat(6, 1)
    w[::3] *= 2
    w[1::2] *= -1
    (mean,), (gradient,) = by_kernels([w], kind, 2.0, half_space=half_space)
    assert mean.isfinite()
    assert mean > 1e3
    assert (gradient == 0).all()


@interpreted
def test_collapsed_points_match_float64(small_tiles):
    w = torch.randn(1, 32) + 0.02 * torch.randn(7, 32)
    (mean,), (gradient,) = by_kernels([w], "geodesic", 2.0)
    wanted, wanted_gradient = by_reference(w, "geodesic", 2.0, dtype=torch.float64)
    assert mean.item() == pytest.approx(wanted.item(), rel=1e-4)
    assert_alike(gradient, wanted_gradient)


@interpreted
@pytest.mark.parametrize("law", [("geodesic", 2.0)])
def test_panel_by_panel_is_the_same_as_all_at_once(small_tiles, law):
    w = torch.randn(37, 20)
    w[5], w[6] = w[35] + 1e-3 * w[5], w[3]
    once, once_pull = pairwise.pair_sums([w], fused._law(*law, False), True)
    panels, panels_pull = pairwise.pair_sums([w, w[:9]], fused._law(*law, False), True, largest=16)
    torch.testing.assert_close(panels[:1], once)
    assert panels[1] < panels[0]
    shape = tiles.Shape(*w.shape)
    once_pull = once_pull.view(shape.parts, shape.rows, shape.width).sum(0)[:37]
    panels_pull = panels_pull[: shape.size].view(shape.rows, shape.width)[:37]
    assert_alike(panels_pull, once_pull)


@interpreted
def test_convolutions_keep_their_layout(small_tiles):
    w = torch.randn(12, 5, 3, 3).to(memory_format=torch.channels_last)
    (mean,), (gradient,) = by_kernels([w], "geodesic", 2.0)
    wanted, wanted_gradient = by_reference(w, "geodesic", 2.0)
    assert gradient.is_contiguous(memory_format=torch.channels_last)
    assert mean.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert_alike(gradient.flatten(1), wanted_gradient)


@interpreted
def test_what_is_not_a_number_stays_so_and_scales_do_not_matter(small_tiles):
    w = torch.randn(10, 8)
    broken, empty = w.clone(), w.clone()
    broken[1, 2] = math.nan
    empty[1] = math.nan
    means, _ = by_kernels([w, w * 1e-30, w * 1e30, broken, empty], "riesz", 2.0)
    torch.testing.assert_close(means[:3], means[:1].expand(3))
    assert means[3:].isnan().all()


@interpreted
def test_the_operator_in_autograd(small_tiles):
    weights = [torch.randn(9, 5, requires_grad=True), torch.randn(12, 7, requires_grad=True)]
    scales = torch.tensor([3.0, -0.5])

    def loss():
        return (fused.pair_means(weights, "riesz", 2.0, False) * scales).sum()

    found = torch.autograd.grad(loss(), weights)
    for w, scale, gradient in zip(weights, scales, found, strict=True):
        assert_alike(gradient, scale * by_reference(w.detach(), "riesz", 2.0)[1])
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for one, other in zip(torch.autograd.grad(compiled(), weights), found, strict=True):
        torch.testing.assert_close(one, other)
    (gradient, _) = torch.autograd.grad(loss(), weights, create_graph=True)
    with pytest.raises(RuntimeError, match="autograd"):
        gradient.square().sum().backward()
    half = weights[0].detach().bfloat16().requires_grad_()
    (mean,) = fused.pair_means([half], "riesz", 2.0, False)
    mean.backward()
    assert (mean.dtype, half.grad.dtype) == (torch.float32, torch.bfloat16)


@interpreted
@pytest.mark.parametrize(
    ("n", "m", "largest", "without"),
    [(8, 8, 64, True), (3, 18, 64, False), (19, 4, 16, False), (5, 9, 64, True), (19, 17, 16, True)],
)
def test_rows_match_the_reference(small_tiles, n, m, largest, without):
    """Panels too; `without` each row's own, which is the same point if there are as many."""
    x, y = unit(torch.randn(n, 24)), unit(torch.randn(m, 24))
    y = x if n == m else y
    found = pairwise.row_logsumexp(x, y, 5.0, without, largest)
    torch.testing.assert_close(found, row_logsumexp(x, y, 5.0, exclude_self=without), rtol=1e-5, atol=1e-6)
    upstream, near = torch.randn(n) * torch.logspace(-3, 3, n), near2(torch.float32, False)
    gradients = pairwise.row_logsumexp_backward(x, y, found, upstream, 5.0, without, near, largest)
    wanted = torch.ops.hypersphere.row_logsumexp_backward(x, y, found, upstream, 5.0, without, 512)
    for gradient, right, at in zip(gradients, wanted, (x, y), strict=True):
        assert_alike(_tangent(gradient, at), _tangent(right, at))


@interpreted
@pytest.mark.parametrize("temperature", [0.07, 0.5])
def test_the_pull_of_a_close_positive_cancels(small_tiles, temperature):
    """The softmax's weight of an aligned positive is near 1: its pull meets the opposite one of the loss itself."""
    n, d = 5, 16
    z1 = unit(torch.randn(n, d, dtype=torch.float64))
    z2 = unit(z1 + 0.2 * unit(torch.randn(n, d, dtype=torch.float64)))
    points = torch.cat([z1, z2])
    scale, upstream = 1 / temperature, torch.full((2 * n,), 1 / (2 * n), dtype=torch.float64)
    total = row_logsumexp(points, points, scale, exclude_self=True)
    exact = sum(torch.ops.hypersphere.row_logsumexp_backward(points, points, total, upstream, scale, True, 512))
    x, given = points.float(), (total.float(), upstream.float())
    found = sum(pairwise.row_logsumexp_backward(x, x, *given, scale, True, near2(torch.float32, False)))
    positive = scale / n * torch.cat([z2, z1])
    ours, right = (_tangent(g.double() - positive, points) for g in (found, exact))
    assert_alike(ours, right, 0.005)


@interpreted
def test_rows_of_collapsed_points_have_the_right_direction(small_tiles):
    centre = torch.randn(1, 24, dtype=torch.float64)
    x, y = (unit(centre + 1e-4 * torch.randn(n, 24, dtype=torch.float64)).float() for n in (5, 7))
    total, upstream = torch.rand(5) + 5, torch.randn(5)
    found = pairwise.row_logsumexp_backward(x, y, total, upstream, 4.0, False, near2(torch.float32, False))
    wanted = torch.ops.hypersphere.row_logsumexp_backward(
        *(tensor.double() for tensor in (x, y, total, upstream)), 4.0, False, 512
    )
    for gradient, right, at in zip(found, wanted, (x, y), strict=True):
        assert_alike(_tangent(gradient.double(), at.double()), _tangent(right, at.double()), 0.01)


@interpreted
def test_slopes_that_vanish_are_no_near_pairs(small_tiles):
    """Slopes that round to −0, beside a pair that is near."""
    w = torch.eye(8)
    w[3:, 0], w[2, 1] = -1e-6, 8
    (mean,), (gradient,) = by_kernels([w], "riesz", 5.0, half_space=True)
    wanted, wanted_gradient = by_reference(w, "riesz", 5.0, half_space=True)
    assert mean.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert_alike(gradient, wanted_gradient)


WIDE, MANY = 262_272, 4096  # the last of so many packed points of so many dimensions lie 2³¹ numbers from the first


@pytest.fixture
def last_points(tmp_path):
    """The last 16 of MANY points, packed; zeros lie where an offset of 32 bits that has turned negative leads. Of these
    8 GiB of a file nothing takes place, in memory or on disk, but what is read or written."""
    with open(tmp_path / "points", "w+b") as file:
        file.truncate(2 * (2**32 + 16 * 2 * WIDE))
        memory = mmap.mmap(file.fileno(), 0)
    return torch.frombuffer(memory, dtype=torch.float16, offset=2 * 2**32).view(16, 2 * WIDE)


BEFORE = 2 * WIDE * (MANY - 16)  # numbers of the points before those


@interpreted
def test_many_points_of_very_many_dimensions_pull(small_tiles, last_points):
    last_points[:, :16] = 256.0 * torch.arange(1, 17)
    job = tiles.PullJob(0, 0, MANY, -BEFORE, WIDE, begin=MANY - 16, split=0, end=MANY, target=0)
    slopes, pull = torch.ones(16 * MANY, dtype=torch.float16), torch.empty(16 * WIDE)
    jobs = tiles.table([job], pull.device)
    pairwise_kernels.pull_kernel[(1,)](jobs, last_points, slopes, pull, 1.0, ADD=False, **pairwise.PULL)
    torch.testing.assert_close(pull.view(16, WIDE)[:, :16], 16 * torch.arange(1.0, 17).expand(16, 16))


@interpreted
def test_many_points_of_very_many_dimensions_have_near_pairs(small_tiles, last_points):
    """The last one, y, is marked as near: x·y = 0.6, and ‖y − x‖² = 0.8."""
    last_points[0, 0], last_points[15, :2] = 256, torch.tensor([0.6, 0.8]) * 256
    where = {"flag": 0, "step": 1, "slopes": 0, "stride": MANY, "split": 0, "pull": 0, "value": 0}
    job = tiles.NearJob(0, -BEFORE, WIDE, rows=1, row=0, tiles=MANY // 16, **where)
    slopes, flags = torch.zeros(MANY, dtype=torch.float16), torch.zeros(MANY // 16, dtype=torch.int32)
    slopes[-1], flags[-1] = -0.0, 1
    pull, value = torch.zeros(WIDE), torch.empty(1)
    pairwise_kernels.near_kernel[(1,)](
        tiles.table([job], pull.device), last_points, slopes, flags, pull, value, None, None, 0.0,
        **fused._law("riesz", 2.0, False).constants, PULL=True, ON_Y=False, ROWS=8, TILES=MANY // 16, CHUNK=2**15,
    )  # fmt: skip
    assert value.item() == pytest.approx(1 / 0.8, rel=1e-3)
    torch.testing.assert_close(pull[:3] / pull[1], torch.tensor([-0.5, 1, 0]), rtol=2e-3, atol=0)


def _tangent(gradient, at):
    return gradient - (gradient * at).sum(1, keepdim=True) * at


@on_gpu
@pytest.mark.parametrize("half_space", [False, True])
@pytest.mark.parametrize("law", LAWS)
def test_gpu_matches_float64(law, half_space):
    weights = [
        torch.randn(n, d, device="cuda") for n, d in [(4096, 512), (256, 4096), (64, 27), (1000, 300), (5000, 64)]
    ]
    means, gradients = by_kernels(weights, *law, half_space=half_space)
    for w, mean, gradient in zip(weights, means, gradients, strict=True):
        wanted, wanted_gradient = by_reference(w, *law, half_space=half_space, dtype=torch.float64)
        assert mean.item() == pytest.approx(wanted.item(), rel=1e-4)
        assert_alike(gradient, wanted_gradient, 0.01)


@on_gpu
def test_gpu_is_deterministic_and_can_be_captured():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.Linear(512, 2048), torch.nn.Linear(64, 5000)).cuda()
    regularizer = hs.EnergyRegularizer(model, metric="geodesic")
    parameters = [p for p in model.parameters() if p.ndim > 1]

    def step():
        return torch.autograd.grad(regularizer(), parameters)

    wanted = step()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for _ in range(3):
        graph.replay()
        for one, two, three in zip(wanted, captured, step(), strict=True):
            assert torch.equal(one, two)
            assert torch.equal(one, three)


@on_gpu
def test_gpu_memory_is_linear():
    x = torch.randn(65536, 512, device="cuda", requires_grad=True)
    hs.hyperspherical_energy(x[:5000])
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    hs.hyperspherical_energy(x)
    extra = torch.cuda.max_memory_allocated() - before - x.nbytes
    assert extra < 0.2 * 2**30


@on_gpu
def test_gpu_losses_match_float64():
    z = torch.randn(3000, 96, device="cuda")
    for loss in (lambda x: hs.uniformity(x), lambda x: hs.nt_xent(x[:1500], x[1500:], 0.1)):
        single, double = z.clone().requires_grad_(), z.double().requires_grad_()
        found, wanted = loss(single), loss(double)
        found.backward()
        wanted.backward()
        assert found.item() == pytest.approx(wanted.item(), rel=1e-5)
        assert_alike(single.grad, double.grad)
