"""The 7 × 7 convolution with its sums, against torch's."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from hypersphere.kernels import stem_7x7 as stem

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(
    ("channels", "outputs", "shape"), [(3, 64, (6, 8, 8)), (1, 16, (4, 10, 6)), (4, 32, (2, 22, 34))]
)
@pytest.mark.parametrize("views", [1, 2])
def test_it_is_the_convolution_with_its_gradient_and_sums(channels, outputs, shape, views):
    batch, height, width = shape
    x = torch.randn(batch, channels, height, width, device=DEVICE).to(memory_format=torch.channels_last)
    weight = torch.randn(outputs, channels, 7, 7, device=DEVICE, requires_grad=True)
    first = torch.randn(outputs, device=DEVICE)
    assert stem.takes(x, weight) == (DEVICE == "cpu")  # a GPU's programs take half precision
    found, sums = stem.convolve(x, weight, first, views)
    exact = weight.detach().double().requires_grad_()
    wanted = F.conv2d(x.double(), exact, stride=2, padding=3)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)
    assert found.is_contiguous(memory_format=torch.channels_last)
    upstream = torch.randn_like(found)
    (ours,) = torch.autograd.grad(found, weight, upstream)
    (theirs,) = torch.autograd.grad(wanted, exact, upstream.double())
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-3)
    wanted = wanted.detach().float()
    gap = (wanted - first[:, None, None]).unflatten(0, (views, -1)).transpose(1, 2).flatten(2)  # V × O × rows
    torch.testing.assert_close(sums.partial.sum(1)[:, 0], gap.sum(2), rtol=1e-3, atol=2e-3)
    torch.testing.assert_close(sums.partial.sum(1)[:, 1], gap.square().sum(2), rtol=1e-3, atol=2e-3)


@pytest.mark.skipif(DEVICE == "cpu", reason="bfloat16 needs a GPU")
def test_photographs_in_half_precision():
    x = torch.randn(64, 3, 128, 128, device=DEVICE).to(torch.bfloat16).to(memory_format=torch.channels_last)
    weight = (0.1 * torch.randn(64, 3, 7, 7, device=DEVICE)).to(torch.bfloat16).requires_grad_()
    assert stem.takes(x, weight)
    found, sums = stem.convolve(x, weight, torch.zeros(64, device=DEVICE), 2)
    exact = weight.detach().double().requires_grad_()
    wanted = F.conv2d(x.double(), exact, stride=2, padding=3)
    assert (found - wanted).norm() < 3e-3 * wanted.norm()
    upstream = torch.randn_like(found)
    (ours,) = torch.autograd.grad(found, weight, upstream)
    (theirs,) = torch.autograd.grad(wanted, exact, upstream.double())
    assert (ours - theirs).norm() < 3e-3 * theirs.norm()
    rows = wanted.unflatten(0, (2, -1)).transpose(1, 2).flatten(2)
    torch.testing.assert_close(sums.partial.double().sum(1)[:, 1], rows.square().sum(2), rtol=1e-2, atol=1.0)


def test_folded_filters_unfold():
    weight = torch.randn(16, 3, 7, 7)
    folded = stem.fold_filters(weight)
    assert folded.shape == (4 * 64, 16)
    assert torch.equal(stem.unfold_filters(folded, 3), weight)


def test_what_it_takes():
    images = torch.zeros(2, 3, 8, 8).to(memory_format=torch.channels_last)
    weight = torch.zeros(64, 3, 7, 7)
    assert stem.takes(images, weight)
    assert not stem.takes(images.contiguous(), weight)
    assert not stem.takes(images[:, :, :7].contiguous(memory_format=torch.channels_last), weight)
    assert not stem.takes(images.requires_grad_(), weight)
    assert not stem.takes(images.detach(), torch.zeros(48, 3, 7, 7))
    assert not stem.takes(images.detach(), torch.zeros(64, 3, 3, 3))
