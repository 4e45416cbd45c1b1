"""BatchNorm, ReLU and max-pooling in one pass, against torch's, view by view."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import resnet18

pytest.importorskip("triton")

from hypersphere import kernels
from hypersphere.kernels import pool, without_kernels
from hypersphere.nn import build_encoder, separate_view_statistics
from hypersphere.nn.norm import together
from tests.kernels.test_norm import channels_last, layer_of, reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def _single_precision():
    """A GPU's convolutions round to 10 bits by default."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def pooled(x, held, views):
    return F.max_pool2d(reference(x, None, held, views, relu=True), 3, stride=2, padding=1)


@pytest.mark.parametrize("shape", [(4, 24, 8, 8), (8, 64, 5, 7), (2, 80, 6, 3)])
@pytest.mark.parametrize("views", [1, 2])
def test_output_gradients_and_running_statistics_are_torchs(shape, views):
    x = channels_last(*shape, offset=3.0).requires_grad_()
    held, layer = layer_of(shape[1], views, relu=True)
    twin, _ = layer_of(shape[1], views, relu=True)
    twin.load_state_dict(held.state_dict())
    wanted, found = pooled(x, twin, views), pool.batch_norm_and_pool(x, layer)
    torch.testing.assert_close(found, wanted)
    assert found.is_contiguous(memory_format=torch.channels_last)
    upstream = torch.randn_like(found)
    ours = torch.autograd.grad(found, [x, held.weight, held.bias], upstream)
    theirs = torch.autograd.grad(wanted, [x, twin.weight, twin.bias], upstream)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(held.running_mean, twin.running_mean)
    torch.testing.assert_close(held.running_var, twin.running_var)
    assert held.num_batches_tracked == views


def test_the_gradients_of_two_uses_are_added():
    x = channels_last(6, 24, 6, 6).requires_grad_()
    held, layer = layer_of(24, 2, relu=True)
    first, second = torch.randn(2, 6, 24, 3, 3, device=DEVICE)
    (theirs,) = torch.autograd.grad(pooled(x, held, 2), x, first + second)
    y, again = pool.batch_norm_and_pool(x, layer._replace(fork=True))
    (ours,) = torch.autograd.grad([y, again], x, [first, second])
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_given_statistics():
    x, (held, layer) = channels_last(6, 24, 7, 6), layer_of(24, 1, relu=True)
    with torch.no_grad():
        held.running_mean.normal_()
        held.running_var.uniform_(0.5, 2)
    wanted = F.max_pool2d(held.eval()(x, relu=True), 3, stride=2, padding=1)
    known = kernels.norm.Statistics(held.running_mean, torch.rsqrt(held.running_var + held.eps))
    torch.testing.assert_close(pool.normalize_and_pool(x, known, layer), wanted, rtol=1e-4, atol=1e-5)


def test_what_is_no_number_stays_so():
    x = channels_last(4, 16, 4, 4)
    x[0, 3, 1, 1] = float("nan")
    found = pool.batch_norm_and_pool(x, layer_of(16, 1, relu=True)[1])
    assert found[:, 3].isnan().all()
    assert found[:, 4].isfinite().all()


def test_a_resnet_with_the_stem_for_photographs_is_torchvisions(monkeypatch):
    """Outputs, gradients and statistics, in training and after it."""
    monkeypatch.setattr(kernels, "runs_on", lambda x: kernels._enabled)
    ours = build_encoder("torchvision/resnet18", stem="imagenet").to(DEVICE).to(memory_format=torch.channels_last)
    theirs = resnet18()
    theirs.fc = nn.Identity()
    theirs.load_state_dict(ours.state_dict())
    theirs.to(DEVICE).to(memory_format=torch.channels_last)
    x = channels_last(4, 3, 32, 32)
    found, wanted = ours(x), theirs(x)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
    upstream = torch.randn_like(found)
    for a, b in zip(
        torch.autograd.grad(found, [*ours.parameters()], upstream),
        torch.autograd.grad(wanted, [*theirs.parameters()], upstream),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3 * b.abs().max().item())
    for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), rtol=1e-3, atol=1e-3)
    with torch.no_grad(), without_kernels():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-3, atol=1e-3)


def test_views_have_statistics_of_their_own(monkeypatch):
    monkeypatch.setattr(kernels, "runs_on", lambda x: kernels._enabled)
    encoder = build_encoder("torchvision/resnet18", stem="imagenet").to(DEVICE).to(memory_format=torch.channels_last)
    separate_view_statistics(encoder)
    views = channels_last(4, 3, 32, 32), channels_last(4, 3, 32, 32, offset=2.0)
    with torch.no_grad():
        found = together(encoder, views)
        with without_kernels():
            wanted = [encoder(view) for view in views]
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
