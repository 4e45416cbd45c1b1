"""Features from inside encoders: the stages of ResNets, and the patches of vision transformers."""

import pytest
import torch
import torchvision
from torchvision.models.feature_extraction import create_feature_extractor

from hypersphere.errors import UserError
from hypersphere.nn import build_encoder
from hypersphere.nn.levels import AtLevel


def test_stages_of_a_resnet_are_those_that_torchvision_extracts():
    encoder, images = build_encoder("torchvision/resnet18").eval(), torch.randn(2, 3, 64, 64)
    theirs = torchvision.models.resnet18()
    theirs.load_state_dict(encoder.state_dict(), strict=False)
    wanted = create_feature_extractor(theirs.eval(), {f"layer{n}": str(n) for n in range(1, 5)})(images)
    for level in (1, 2, 3, 4):
        found = AtLevel(encoder, level)(images)
        torch.testing.assert_close(found, wanted[str(level)])
        torch.testing.assert_close(AtLevel(encoder, level, pooled=True)(images), wanted[str(level)].mean((2, 3)))
    torch.testing.assert_close(AtLevel(encoder, 4, pooled=True)(images), encoder(images))


def test_patches_of_a_transformer_of_torchvision():
    encoder, images = build_encoder("torchvision/vit_b_32").eval(), torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        tokens = encoder._process_input(images)
        tokens = encoder.encoder(torch.cat([encoder.class_token.expand(1, -1, -1), tokens], dim=1))
        found = AtLevel(encoder, "patches")(images)
    assert found.shape == (1, 49, 768)
    torch.testing.assert_close(found, tokens[:, 1:])


@pytest.mark.parametrize("name", ["test_vit", "vit_tiny_patch16_224", "resnet10t"])
def test_levels_of_models_of_timm(name):
    pytest.importorskip("timm")
    encoder = build_encoder(f"timm/{name}").eval()
    images = torch.randn(2, 3, encoder.input_size, encoder.input_size)
    with torch.no_grad():
        whole = encoder.forward_features(images)
        if name == "resnet10t":
            torch.testing.assert_close(AtLevel(encoder, 4)(images), whole)
        else:
            torch.testing.assert_close(AtLevel(encoder, "patches")(images), whole[:, encoder.num_prefix_tokens :])
            pooled = AtLevel(encoder, "patches", pooled=True)(images)
            torch.testing.assert_close(pooled, whole[:, encoder.num_prefix_tokens :].mean(1))


@pytest.mark.parametrize(
    ("name", "level", "told"),
    [
        ("torchvision/resnet18", 5, "`level` must be from 1 to 4 for ResNet, got 5"),
        ("torchvision/resnet18", "patches", "`level` 'patches' does not exist in ResNet: it is 1 to 4 for ResNets and"),
        ("hypersphere/digits", 1, "`level` 1 does not exist in ConvNet"),
    ],
)
def test_levels_that_do_not_exist(name, level, told):
    with pytest.raises(UserError, match=told):
        AtLevel(build_encoder(name), level)
