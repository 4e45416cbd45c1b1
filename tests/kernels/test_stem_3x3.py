"""The first convolution with its sums, against torch's."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from hypersphere.kernels import norm
from hypersphere.kernels import stem_3x3 as stem

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(("channels", "outputs", "shape"), [(3, 64, (6, 8, 8)), (1, 16, (4, 5, 7))])
@pytest.mark.parametrize("views", [1, 2])
def test_it_is_the_convolution_with_its_gradient_and_sums(channels, outputs, shape, views):
    batch, height, width = shape
    x = torch.randn(batch, channels, height, width, device=DEVICE).to(memory_format=torch.channels_last)
    weight = torch.randn(outputs, channels, 3, 3, device=DEVICE, requires_grad=True)
    first = torch.randn(outputs, device=DEVICE)
    assert stem.takes(x, weight)
    found, sums = stem.convolve(x, weight, first, views)
    exact = weight.detach().double().requires_grad_()
    wanted = F.conv2d(x.double(), exact, padding=1)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5)
    assert found.is_contiguous(memory_format=torch.channels_last)
    upstream = torch.randn_like(found)
    (ours,), (theirs,) = (
        torch.autograd.grad(found, weight, upstream),
        torch.autograd.grad(wanted, exact, upstream.double()),
    )
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-3)
    wanted = wanted.detach().float()
    gap = (wanted - first[:, None, None]).unflatten(0, (views, -1)).transpose(1, 2).flatten(2)  # V × O × rows
    torch.testing.assert_close(sums.partial.sum(1)[:, 0], gap.sum(2), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(sums.partial.sum(1)[:, 1], gap.square().sum(2), rtol=1e-3, atol=1e-3)


def test_batch_norm_from_the_sums_is_batch_norm():
    x = torch.randn(8, 3, 6, 6, device=DEVICE).to(memory_format=torch.channels_last)
    weight = torch.randn(16, 3, 3, 3, device=DEVICE)
    held = [torch.ones(16), torch.zeros(16), torch.randn(16), torch.ones(16), torch.zeros((), dtype=torch.long)]
    ours, theirs = ([t.clone().to(DEVICE) for t in held] for _ in range(2))
    y, sums = stem.convolve(x, weight, ours[2], 2)
    found = norm.batch_norm(y, None, norm.Norm(*ours, 1e-5, 0.1, 2, True), sums=sums)
    exact = F.conv2d(x.double(), weight.double(), padding=1).float()
    exact = exact.to(memory_format=torch.channels_last)  # the kernel's layout; a float64 convolution may have another
    wanted = norm.batch_norm(exact, None, norm.Norm(*theirs, 1e-5, 0.1, 2, True))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_what_it_takes():
    images = torch.zeros(2, 3, 8, 8).to(memory_format=torch.channels_last)
    assert stem.takes(images, torch.zeros(64, 3, 3, 3))
    assert not stem.takes(images.contiguous(), torch.zeros(64, 3, 3, 3))
    assert not stem.takes(images.requires_grad_(), torch.zeros(64, 3, 3, 3))
    assert not stem.takes(images.detach(), torch.zeros(48, 3, 3, 3))
    assert not stem.takes(images.detach(), torch.zeros(64, 3, 7, 7))
