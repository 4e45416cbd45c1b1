"""The patch projection as a product, against torch's convolution."""

import copy

import pytest
import torch
from torch import nn

from hypersphere.nn import build_encoder
from hypersphere.nn.patches import PatchConvolution, multiply_patches


@pytest.mark.parametrize(
    ("shape", "patch", "bias"),
    [((2, 3, 32, 48), (16, 16), True), ((2, 3, 31, 22), (4, 5), False), ((3, 9, 8), (4, 4), True)],
)
def test_the_product_is_the_convolution(shape, patch, bias):
    layer = PatchConvolution(3, 7, patch, stride=patch, bias=bias).double()
    x = torch.randn(shape, dtype=torch.float64).requires_grad_()
    product, convolved = layer(x), nn.functional.conv2d(x, layer.weight, layer.bias, stride=patch)
    up = torch.randn_like(product)
    ours, theirs = ((y, *torch.autograd.grad(y, (x, *layer.parameters()), up)) for y in (product, convolved))
    for tensor, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(tensor, other)
    assert product.movedim(-3, -1).is_contiguous()  # as tokens they need no copy


@pytest.mark.parametrize(
    ("name", "replaced"),
    [
        ("timm/test_vit", ["patch_embed.proj"]),
        ("timm/convnext_atto", ["stem.0"]),
        ("torchvision/vit_b_32", ["conv_proj"]),
        ("torchvision/swin_t", ["features.0.0"]),
        ("timm/resnet10t", []),
    ],
)
def test_networks_with_products_are_the_same(name, replaced):
    plain = build_encoder(name, size=64).eval()
    ours = copy.deepcopy(plain)
    multiply_patches(ours)
    assert [at for at, layer in ours.named_modules() if isinstance(layer, PatchConvolution)] == replaced
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 3, 64, 64).to(memory_format=layout)
        torch.testing.assert_close(ours(x), plain(x))
    assert ours.state_dict().keys() == plain.state_dict().keys()
    torch.fx.symbolic_trace(nn.Sequential(*(ours.get_submodule(at) for at in replaced)))
