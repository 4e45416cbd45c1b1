"""Tiles, degenerate points, precisions, compilation, memory."""

import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import forward_ad

import hypersphere as hs
from hypersphere.sphere.pairwise import pair_mean, row_logsumexp
from hypersphere.sphere.potentials import floor
from hypersphere.sphere.unit import unit

METRICS = ["euclidean", "geodesic"]


def energy_and_gradient(w, **options):
    w = w.clone().requires_grad_()
    energy = hs.hyperspherical_energy(w, **options)
    energy.backward()
    return energy.detach(), w.grad


def pair_at(angle, d=16, dtype=torch.float64, others=6):
    """Two points at an angle, in general position and of general length, among others."""
    a, b = torch.linalg.qr(torch.randn(d, 2, dtype=torch.float64)).Q.T
    near = torch.stack([3 * a, 0.7 * (math.cos(angle) * a + math.sin(angle) * b)])
    return torch.cat([near, torch.randn(others, d, dtype=torch.float64)]).to(dtype)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 40), tile=st.integers(1, 45), half_space=st.booleans(),
    kind=st.sampled_from([("riesz", 2.0), ("riesz", 0.0), ("geodesic", 2.0), ("gaussian", 2.0)]),
    seed=st.integers(0, 2**31),
)  # fmt: skip
def test_tiled_equals_dense_at_any_tile_size(n, tile, half_space, kind, seed):
    x = torch.randn(n, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    x[n // 2] = x[0] + 1e-3 * x[n // 2]  # a near pair that falls into one tile or two
    x.requires_grad_()
    dense = pair_mean(unit(x), *kind, half_space=half_space, tile=n)
    tiled = pair_mean(unit(x), *kind, half_space=half_space, tile=tile)
    torch.testing.assert_close(tiled, dense, rtol=1e-12, atol=1e-12)
    (by_dense,), (by_tiles,) = (torch.autograd.grad(v, x) for v in (dense, tiled))
    torch.testing.assert_close(by_tiles, by_dense, rtol=1e-9, atol=1e-11 * by_dense.abs().max().item())


@settings(max_examples=30, deadline=None)
@given(n=st.integers(2, 30), m=st.integers(1, 30), tile=st.integers(1, 35), same=st.booleans())
def test_tiled_rows_equal_torch(n, m, tile, same):
    x = unit(torch.randn(n, 8, dtype=torch.float64)).requires_grad_()
    y = x if same else unit(torch.randn(m, 8, dtype=torch.float64)).requires_grad_()
    logits = 3 * x @ y.T
    if same:
        logits = logits.masked_fill(torch.eye(n, dtype=torch.bool), -torch.inf)
    wanted = logits.logsumexp(1)
    found = row_logsumexp(x, y, 3.0, exclude_self=same, tile=tile)
    torch.testing.assert_close(found, wanted)
    weights = torch.randn(n, dtype=torch.float64)
    for a, b in zip(*(torch.autograd.grad(v @ weights, [x, y]) for v in (found, wanted)), strict=True):
        torch.testing.assert_close(_tangent(a, x if len(a) == n else y), _tangent(b, x if len(b) == n else y))


def _tangent(gradient, at):
    """Rows of gradients are defined up to multiples of their points."""
    if gradient.shape != at.shape:
        return gradient
    return gradient - (gradient * at).sum(1, keepdim=True) * at


@pytest.mark.parametrize("half_space", [False, True])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_exact_duplicates_have_finite_energy_and_no_gradient(dtype, metric, half_space):
    w = torch.randn(1, 8).to(dtype).repeat(3, 1)
    energy, gradient = energy_and_gradient(w, metric=metric, half_space=half_space)
    assert energy.isfinite()
    assert energy > 1e3
    assert (gradient == 0).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("s", [0.0, 2.0, 12.0, 60.0])
def test_no_power_overflows(s, metric):
    w = torch.randn(2, 8).repeat(2, 1)
    w[3, 0] += 1e-6
    energy, gradient = energy_and_gradient(w, s=s, metric=metric)
    assert energy.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("s", [0.0, 1.0, 2.0])
def test_near_duplicates_match_float64_above_the_documented_angle(s, metric):
    for angle in (1e-1, 1e-2, 1e-3, 1.1 * floor(torch.float32)):
        exact = pair_at(angle).float().double()
        energy, gradient = energy_and_gradient(exact, s=s, metric=metric)
        energy32, gradient32 = energy_and_gradient(exact.float(), s=s, metric=metric)
        assert (gradient32 - gradient).norm() <= 0.01 * gradient.norm()
        assert energy32.item() == pytest.approx(energy.item(), rel=0.01)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_nearer_than_that_the_gradient_is_bounded_and_repels(dtype, metric):
    theta = floor(dtype)
    bound = 2 * theta**-3  # |φ′| · θ at the floor, s = 2
    for part in (0.5, 1e-1, 1e-2):
        w = pair_at(part * theta, dtype=dtype, others=0)
        w[1] *= w[0].norm() / w[1].norm()
        _, gradient = energy_and_gradient(w, metric=metric)
        apart = (w[0] - w[1]).double()
        assert (-gradient[0].double() @ apart) > 0
        assert (-gradient[1].double() @ apart) < 0
        assert 0 < (gradient[0].norm() * w[0].norm()).item() < bound


@pytest.mark.parametrize("half_space", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_opposites(metric, half_space):
    w = torch.randn(1, 8)
    w = torch.cat([w, -w])
    energy, gradient = energy_and_gradient(w, metric=metric, half_space=half_space)
    assert (gradient == 0).all()
    if not half_space:
        assert energy.item() == pytest.approx(1 / 4 if metric == "euclidean" else math.pi**-2)
    near = pair_at(math.pi - 1e-3).float()
    _, gradient64 = energy_and_gradient(near.double(), metric=metric, half_space=half_space)
    _, gradient32 = energy_and_gradient(near, metric=metric, half_space=half_space)
    assert (gradient32 - gradient64).norm() <= 0.01 * gradient64.norm()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "measure",
    [
        hs.hyperspherical_energy,
        lambda w: hs.hyperspherical_energy(w, metric="geodesic", half_space=True),
        hs.uniformity,
        lambda w: hs.nt_xent(w, w.flip(0)),
        lambda w: hs.alignment(w, w.detach().roll(1, 0)),
    ],
)
def test_a_zero_row_has_exactly_zero_gradient(measure, dtype):
    w = torch.randn(5, 8).to(dtype)
    w[2] = 0
    w.requires_grad_()
    value = measure(w)
    value.backward()
    assert value.isfinite()
    assert (w.grad[2] == 0).all()
    assert (w.grad[0] != 0).any()


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_tiny_and_huge_rows_are_only_directions(scale):
    w = torch.randn(6, 8)
    torch.testing.assert_close(hs.hyperspherical_energy(w * scale), hs.hyperspherical_energy(w))
    torch.testing.assert_close(hs.uniformity(w * scale), hs.uniformity(w))


@pytest.mark.filterwarnings("ignore:`torch.jit.script`")  # of torch's own decompositions
@pytest.mark.parametrize("measure", [hs.hyperspherical_energy, hs.uniformity, lambda x: hs.nt_xent(x, x.flip(0))])
def test_half_precision_is_computed_in_float32(measure):
    x = torch.randn(40, 16).bfloat16()
    wanted = measure(x.double())
    half = x.clone().requires_grad_()
    found = measure(half)
    found.backward()
    assert found.dtype == torch.float32
    assert half.grad.dtype == torch.bfloat16
    assert found.item() == pytest.approx(wanted.item(), rel=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert measure(x.float()).item() == pytest.approx(wanted.item(), rel=1e-5)


def test_a_float16_gradient_saturates():
    w = torch.randn(1, 8).half().repeat(2, 1)
    w[1, 0] += 0.01
    _, gradient = energy_and_gradient(w, s=6.0)
    assert gradient.isfinite().all()
    assert gradient.abs().max() > 1e4


def test_low_matmul_precision_does_not_reach_the_cosines():
    x = torch.randn(64, 512)
    wanted = hs.hyperspherical_energy(x)
    torch.set_float32_matmul_precision("medium")
    try:
        assert hs.hyperspherical_energy(x) == wanted
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_compiles_as_one_graph():
    def loss(x):
        return hs.hyperspherical_energy(x, metric="geodesic") + hs.uniformity(x) + hs.nt_xent(x, x.flip(0))

    x = torch.randn(30, 8, requires_grad=True)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), loss(x))
    (wanted,), (found,) = (torch.autograd.grad(f(x), x) for f in (loss, compiled))
    torch.testing.assert_close(found, wanted)


def test_many_points_in_linear_memory():
    """An N × N float32 tensor would be 310 MiB, beside the 200 that torch takes."""
    program = """
import resource, torch, hypersphere as hs
x = torch.randn(9_000, 64, requires_grad=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
hs.hyperspherical_energy(x, metric="geodesic").backward()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(found.stdout) < 300  # MiB


def test_what_is_not_a_number_stays_so():
    x = torch.randn(5, 3)
    x[1, 2] = math.nan
    for value in (hs.hyperspherical_energy(x), hs.uniformity(x), hs.byol_loss(x, x), hs.nt_xent(x, x)):
        assert value.isnan()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("opposed", [False, True])
def test_crowded_points_match_float64(metric, opposed):
    """Nearly every pair is near: the tile is computed another way, to the same result."""
    x = torch.randn(1, 32) + 0.02 * torch.randn(100, 32)
    x[7] = 2 * x[3]
    if opposed:
        x[::2] *= -1
    for measure in (lambda w: hs.hyperspherical_energy(w, metric=metric, half_space=opposed), hs.uniformity):
        exact, single = x.double().requires_grad_(), x.clone().requires_grad_()
        wanted, found = measure(exact), measure(single)
        wanted.backward()
        found.backward()
        if measure is hs.uniformity:
            assert found.item() == pytest.approx(wanted.item(), abs=1e-6)
        keep = [i for i in range(100) if i not in (3, 7)]  # duplicates: held at another floor in float64
        assert (single.grad[keep] - exact.grad[keep]).norm() <= 0.01 * exact.grad[keep].norm()


@pytest.mark.parametrize("d", [3, 8, 100, 512, 1000])
@pytest.mark.parametrize("half_space", [False, True])
def test_crowded_duplicates_have_no_gradient(d, half_space):
    """Nor opposites, where both count: rounding has it that they are apart, at slopes of up to 1e28."""
    x = torch.randn(1, d).repeat(100, 1)
    if half_space:
        x[::3] *= -2
    for s in (2, 4, 6):
        w = x.clone().requires_grad_()
        hs.hyperspherical_energy(w, s=s, half_space=half_space).backward()
        assert (w.grad == 0).all()


def test_crowded_duplicates_do_not_move_among_others():
    x = torch.cat([torch.randn(1, 256).repeat(100, 1), torch.randn(100, 256)])
    single, exact = x.clone().requires_grad_(), x.double().requires_grad_()
    for w in (single, exact):
        hs.hyperspherical_energy(w, s=4).backward()
    torch.testing.assert_close(single.grad.double(), exact.grad, rtol=1e-3, atol=1e-8)


@pytest.mark.parametrize("metric", METRICS)
def test_zero_rows_are_at_right_angles_in_a_crowd_too(metric):
    x = torch.cat([torch.randn(1, 64) + 0.05 * torch.randn(96, 64), torch.zeros(32, 64)])
    for s in (0, 1, 2):
        wanted = hs.hyperspherical_energy(x.double(), s=s, metric=metric)
        assert hs.hyperspherical_energy(x, s=s, metric=metric).item() == pytest.approx(wanted.item(), rel=1e-4)


@pytest.mark.filterwarnings("ignore:`torch.jit.script`")  # of torch's own decompositions
@pytest.mark.parametrize("measure", [hs.hyperspherical_energy, hs.uniformity, lambda x: hs.nt_xent(x[:3], x[3:])])
def test_forward_mode_derivatives_are_refused(measure):
    """They would be lost, not wrong by rounding."""
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward-mode"):
        measure(forward_ad.make_dual(torch.randn(6, 4), torch.randn(6, 4)))


@pytest.mark.parametrize("measure", [hs.hyperspherical_energy, hs.uniformity, hs.koleo])
def test_a_map_over_matrices_has_their_gradients(measure):
    x = torch.randn(3, 20, 5)
    each, together = x.clone().requires_grad_(), x.clone().requires_grad_()
    wanted = torch.stack([measure(one) for one in each])
    found = torch.vmap(measure)(together)
    torch.testing.assert_close(found, wanted)
    wanted.sum().backward()
    found.sum().backward()
    torch.testing.assert_close(together.grad, each.grad)


def test_a_map_over_matrices_compiles():
    x = torch.randn(3, 20, 5, requires_grad=True)
    found = torch.compile(torch.vmap(hs.hyperspherical_energy), backend="aot_eager")(x)
    torch.testing.assert_close(found, torch.stack([hs.hyperspherical_energy(one) for one in x]))
    (gradient,) = torch.autograd.grad(found.sum(), x)
    (wanted,) = torch.autograd.grad(sum(hs.hyperspherical_energy(one) for one in x), x)
    torch.testing.assert_close(gradient, wanted)


def test_second_derivatives_are_refused():
    for measure in (hs.hyperspherical_energy, hs.uniformity):
        x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(measure(x), x, create_graph=True)
        with pytest.raises(RuntimeError, match="autograd"):
            gradient.square().sum().backward()


def test_an_overflow_behind_a_float16_layer_reaches_the_scaler():
    layer = torch.nn.Linear(8, 4, bias=False).half()
    z = layer(torch.randn(6, 8).half())
    (hs.byol_loss(z, torch.randn(6, 4)) * 2.0**24).backward()
    assert not layer.weight.grad.isfinite().all()


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="a setting of torch 2.9")
def test_the_newer_precision_setting_is_respected_and_restored():
    """In a process of its own: torch refuses the older setting, once the newer one has been used."""
    program = """
import torch, hypersphere as hs
from hypersphere.sphere.precision import full_precision
x = torch.randn(64, 512)
wanted = hs.hyperspherical_energy(x)
for matmul, coarse in ((torch.backends.cuda.matmul, "tf32"), (torch.backends.mkldnn.matmul, "bf16")):
    first, matmul.fp32_precision = matmul.fp32_precision, coarse
    before = matmul.fp32_precision
    assert hs.hyperspherical_energy(x) == wanted, coarse
    assert matmul.fp32_precision == before != "ieee"
    one, other = full_precision(x), full_precision(x)  # as of threads that overlap
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert matmul.fp32_precision == "ieee"
    other.__exit__(None, None, None)
    assert matmul.fp32_precision == before
    matmul.fp32_precision = first
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize(
    "loss", [hs.uniformity, hs.koleo, hs.hyperspherical_energy, lambda x: hs.nt_xent(x, x.flip(0))]
)
def test_batches_of_any_size_are_compiled_once(loss):
    """The second size makes the size a variable; no other compiles again."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    for n in range(20, 26):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), loss(x))
    assert len(graphs) == 2


@pytest.mark.skipif(not hasattr(torch, "float8_e4m3fn"), reason="of newer versions of torch")
def test_eight_bits_are_widened_as_sixteen_are():
    x = torch.randn(20, 5).to(torch.float8_e4m3fn)
    torch.testing.assert_close(hs.hyperspherical_energy(x), hs.hyperspherical_energy(x.float()))


def test_a_learnt_scale_leaves_out_a_rows_own_point_as_a_number_does():
    """Among more points or fewer."""
    x, y = unit(torch.randn(4, 6)), unit(torch.randn(7, 6))
    for a, b in ((x, y), (y, x)):
        wanted = row_logsumexp(a, b, 3.0, exclude_self=True)
        torch.testing.assert_close(row_logsumexp(a, b, torch.tensor(3.0), exclude_self=True), wanted)
