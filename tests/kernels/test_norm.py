"""The fused BatchNorm against torch's, view by view."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytest.importorskip("triton")

from hypersphere.kernels import norm as kernel
from hypersphere.kernels import without_kernels
from hypersphere.nn import build_encoder, each_view
from hypersphere.nn.norm import BatchNorm2d

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def channels_last(*shape, offset=0.0):
    x = torch.randn(shape, device=DEVICE) + offset
    return x.to(memory_format=torch.channels_last) if len(shape) == 4 else x


def layer_of(channels, views, relu):
    held = BatchNorm2d(channels).to(DEVICE)
    with torch.no_grad():
        held.weight.uniform_(0.5, 2)
        held.bias.normal_()
    inner = (held.weight, held.bias, held.running_mean, held.running_var, held.num_batches_tracked)
    return held, kernel.Norm(*inner, held.eps, held.momentum, views, relu)


def reference(x, residual, held, views, relu):
    parts = [
        F.batch_norm(part, held.running_mean, held.running_var, held.weight, held.bias, True, held.momentum, held.eps)
        for part in x.chunk(views)
    ]
    y = torch.cat(parts) if residual is None else torch.cat(parts) + residual
    return y.relu() if relu else y


@pytest.mark.parametrize("shape", [(4, 24, 5, 5), (24, 80), (20, 64, 3, 3)])
@pytest.mark.parametrize("mode", ["plain", "relu", "residual"])
@pytest.mark.parametrize("views", [1, 2])
def test_output_gradients_and_running_statistics_are_torchs(shape, mode, views):
    x = channels_last(*shape, offset=3.0).requires_grad_()
    residual = channels_last(*shape).requires_grad_() if mode == "residual" else None
    held, layer = layer_of(shape[1], views, relu=mode != "plain")
    twin, _ = layer_of(shape[1], views, relu=False)
    twin.load_state_dict(held.state_dict())
    upstream = channels_last(*shape)
    leaves = [x] if residual is None else [x, residual]
    wanted = reference(x, residual, twin, views, mode != "plain")
    found = kernel.batch_norm(x, residual, layer)
    torch.testing.assert_close(found, wanted)
    ours = torch.autograd.grad(found, [*leaves, held.weight, held.bias], upstream)
    theirs = torch.autograd.grad(wanted, [*leaves, twin.weight, twin.bias], upstream)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(held.running_mean, twin.running_mean)
    torch.testing.assert_close(held.running_var, twin.running_var)
    assert held.num_batches_tracked == views


@pytest.mark.parametrize("residual", [None, channels_last(20, 24, 3, 3)])
def test_the_gradients_of_two_uses_are_added(residual):
    x, (first, second) = channels_last(20, 24, 3, 3).requires_grad_(), torch.randn(2, 20, 24, 3, 3, device=DEVICE)
    held, layer = layer_of(24, 2, relu=True)
    wanted = reference(x, residual, held, 2, relu=True)
    y, again = kernel.batch_norm(x, residual, layer._replace(fork=True))
    (theirs,) = torch.autograd.grad(wanted, x, first + second)
    (ours,) = torch.autograd.grad([y, again], x, [first, second], retain_graph=True)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    (ours,) = torch.autograd.grad(again, x, first)
    (theirs,) = torch.autograd.grad(reference(x, residual, held, 2, relu=True), x, first)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fork", [False, True])
def test_a_residual_that_is_normalized_on_the_way(fork):
    x, shortcut = (channels_last(20, 24, 3, 3, offset=n).requires_grad_() for n in (1.0, 2.0))
    (held, layer), (beside, other) = (layer_of(24, 2, relu=relu) for relu in (True, False))
    twins = [copy.deepcopy(norm) for norm in (held, beside)]
    wanted = reference(x, reference(shortcut, None, twins[1], 2, relu=False), twins[0], 2, relu=True)
    found = kernel.batch_norm(x, shortcut, layer._replace(fork=fork), other=other)
    found = found[1] if fork else found
    torch.testing.assert_close(found, wanted)
    upstream = channels_last(20, 24, 3, 3)
    leaves = [[x, shortcut, *(p for norm in norms for p in norm.parameters())] for norms in ((held, beside), twins)]
    ours, theirs = (torch.autograd.grad(y, some, upstream) for y, some in zip((found, wanted), leaves, strict=True))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    for a, b in zip((held, beside), twins, strict=True):
        torch.testing.assert_close(a.running_mean, b.running_mean)
        torch.testing.assert_close(a.running_var, b.running_var)


def test_a_large_mean_does_not_swallow_the_variance():
    x = channels_last(64, 8, 2, 2, offset=1000.0)
    held, layer = layer_of(8, 1, relu=False)
    exact = F.batch_norm(x.double(), None, None, held.weight.double(), held.bias.double(), True)
    torch.testing.assert_close(kernel.batch_norm(x, None, layer).double(), exact, rtol=1e-3, atol=1e-3)


def test_what_is_no_number_stays_so():
    """A ReLU that made it 0 would hide a run that diverged."""
    x = channels_last(8, 16, 2, 2)
    x[0, 3] = float("nan")
    _, layer = layer_of(16, 1, relu=True)
    found = kernel.batch_norm(x, None, layer)
    assert found[:, 3].isnan().all()
    assert found[:, 4].isfinite().all()
    known = kernel.Statistics(torch.zeros(16, device=DEVICE), torch.ones(16, device=DEVICE))
    assert kernel.normalize(x, None, known, layer)[0, 3].isnan().all()


def test_second_derivatives_are_refused():
    x = channels_last(8, 16, 2, 2).requires_grad_()
    _, layer = layer_of(16, 1, relu=True)
    (gradient,) = torch.autograd.grad(kernel.batch_norm(x, None, layer).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.square().sum().backward()


def test_known_statistics_in_one_pass():
    x, residual = channels_last(4, 24, 5, 5), channels_last(4, 24, 5, 5)
    held, layer = layer_of(24, 1, relu=True)
    with torch.no_grad():
        held.running_mean.normal_()
        held.running_var.uniform_(0.5, 2)
        wanted = (held.eval()(x) + residual).relu()
        known = kernel.Statistics(held.running_mean, (held.running_var + held.eps).rsqrt())
        found = kernel.normalize(x, residual, known, layer)
    torch.testing.assert_close(found, wanted)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="dispatch to kernels needs a GPU")
@pytest.mark.parametrize("training", [True, False])
def test_a_resnet_on_the_gpu_is_its_reference(training):
    encoder = build_encoder("torchvision/resnet18", stem="cifar").cuda().to(memory_format=torch.channels_last)
    encoder.train(training)
    views = tuple(channels_last(32, 3, 32, 32) for _ in range(2))
    with torch.set_grad_enabled(training):
        found = torch.cat(each_view(encoder, views))
        with without_kernels():
            wanted = torch.cat([encoder(view) for view in views])
    assert nn.functional.cosine_similarity(found, wanted).min() > 0.9999
