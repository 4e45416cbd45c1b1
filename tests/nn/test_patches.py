"""The patch projection as a product, against torch's convolution."""

import pytest
import timm
import torch
from torch import nn

from hypersphere.nn import build_encoder
from hypersphere.nn.patches import PatchConvolution


@pytest.mark.parametrize(("sides", "patch", "bias"), [((32, 48), (16, 16), True), ((31, 22), (4, 5), False)])
def test_the_product_is_the_convolution(sides, patch, bias):
    layer = PatchConvolution(3, 7, patch, stride=patch, bias=bias).double()
    x = torch.randn(2, 3, *sides, dtype=torch.float64).to(memory_format=torch.channels_last).requires_grad_()
    up = torch.randn_like(layer(x))
    product, convolved = layer.product(x), nn.functional.conv2d(x, layer.weight, layer.bias, stride=patch)
    ours, theirs = ((y, *torch.autograd.grad(y, (x, *layer.parameters()), up)) for y in (product, convolved))
    for tensor, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(tensor, other)
    assert product.is_contiguous(memory_format=torch.channels_last)  # as tokens they need no copy


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
def test_only_patches_of_images_are_products(name, replaced):
    encoder = build_encoder(name, size=64)
    assert [at for at, layer in encoder.named_modules() if isinstance(layer, PatchConvolution)] == replaced


def test_weights_and_random_numbers_stay_those_of_the_library():
    torch.manual_seed(0)
    ours, after = build_encoder("timm/test_vit", size=64), torch.rand(1)
    torch.manual_seed(0)
    options = {"img_size": 64, "dynamic_img_size": True, "dynamic_img_pad": True}
    theirs, then = timm.create_model("test_vit", num_classes=0, **options), torch.rand(1)
    assert after == then
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)
    x = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), rtol=0, atol=0)
