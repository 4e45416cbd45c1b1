"""Vision transformers for images of any size, and models of timm whose width their library does not say."""

import copy

import pytest
import timm
import torch
from torch import nn
from torchvision.models import VisionTransformer

from hypersphere.errors import UserError
from hypersphere.nn import build_encoder, features_of, is_transformer
from hypersphere.nn.encoders import sketch
from hypersphere.nn.libraries import pretrained_model
from hypersphere.nn.torchvision_vit import accept_any_size
from hypersphere.nn.transformers import patch_projection, resampled_positions
from hypersphere.nn.weights import load_tensors


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("timm/test_vit", 64),
        ("timm/test_vit", 50),
        ("timm/vit_tiny_patch16_224", 224),
        ("timm/swinv2_cr_tiny_ns_224", 64),
        ("timm/cait_xxs24_224", 64),  # of one size only
        ("timm/lcnet_035", 32),  # num_features of timm is that before the head
        ("timm/ghostnet_050", 32),
        ("timm/hgnetv2_b0", 64),
        ("torchvision/squeezenet1_1", 32),  # without a linear layer
        ("torchvision/swin_t", 64),
    ],
)
def test_a_model_of_a_library_takes_the_size_for_which_it_is_built(name, side):
    encoder = build_encoder(name, size=side).eval()
    with torch.no_grad():
        assert encoder(torch.randn(2, 3, side, side)).shape == (2, features_of(encoder))


def vit_of_torchvision():
    vit = VisionTransformer(64, 16, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64)
    vit.heads = nn.Identity()
    return vit.eval()


def test_a_vit_takes_views_of_any_size():
    vits = {64: build_encoder("timm/test_vit", size=64).eval(), 32: accept_any_size(vit_of_torchvision())}
    with torch.no_grad():
        for side in (64, 96, 27, 75):
            for features, vit in vits.items():
                assert vit(torch.randn(2, 3, side, side)).shape == (2, features)


def test_the_vit_of_torchvision_returns_what_theirs_does():
    theirs = vit_of_torchvision()
    ours, images = accept_any_size(copy.deepcopy(theirs)), torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(ours(images), theirs(images))
    assert type(accept_any_size(nn.Linear(2, 2))) is nn.Linear


def test_small_models_have_the_weights_that_they_have_without_a_size():
    """The attempts to build a model for a size draw no random numbers."""
    found = []
    for size in (None, 224):
        torch.manual_seed(3)
        found.append(build_encoder("timm/resnet10t", size=size).state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


@pytest.mark.parametrize("tokens", [0, 1, 5])
def test_position_embeddings_are_interpolated_as_timm_does(tokens):
    positions = torch.randn(1, tokens + 36, 8)
    wanted = timm.layers.resample_abs_pos_embed(positions, [9, 9], num_prefix_tokens=tokens)
    torch.testing.assert_close(resampled_positions(positions, tokens + 81), wanted)
    with pytest.raises(ValueError, match="not two square grids"):
        resampled_positions(torch.randn(1, 38, 8), 40)


def test_weights_for_another_size_are_interpolated(capsys):
    large, small = (build_encoder("timm/test_vit", size=side).eval() for side in (160, 64))
    assert load_tensors(small, large.state_dict(), "large.pt") == []
    assert capsys.readouterr().err == "hypersphere: large.pt: interpolated pos_embed from 101 to 17 positions\n"
    wanted = timm.create_model("test_vit", num_classes=0, img_size=160, dynamic_img_size=True).eval()
    wanted.load_state_dict(large.state_dict())
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():  # timm interpolates in each step
        torch.testing.assert_close(small(images), wanted(images), rtol=1e-4, atol=1e-4)


def test_weights_of_a_library_are_asked_for_in_the_size_of_the_encoder(monkeypatch):
    asked = []

    def create(name, *, pretrained, make=timm.create_model, **options):
        asked.append((pretrained, options))
        return make(name, **options)

    encoder = build_encoder("timm/test_vit", size=64)
    monkeypatch.setattr(timm, "create_model", create)
    pretrained_model("timm/test_vit", like=encoder)
    ((pretrained, options),) = asked
    assert pretrained
    assert options["img_size"] == 64


@pytest.mark.parametrize(
    ("name", "transformer", "patches"),
    [
        ("timm/test_vit", True, True),
        ("timm/eva02_tiny_patch14_224", True, True),
        ("timm/swin_tiny_patch4_window7_224", True, True),
        ("timm/pvt_v2_b0", True, False),  # its patches overlap
        ("torchvision/vit_b_16", True, True),
        ("torchvision/swin_t", True, True),
        ("timm/convnext_atto", False, True),
        ("timm/botnet26t_256", False, False),
        ("timm/levit_128s", False, False),
        ("torchvision/mobilenet_v3_small", False, False),
    ],
)
def test_transformers_are_told_from_convolutional_networks(name, transformer, patches):
    network = sketch(name)
    assert all(weight.is_meta for weight in network.parameters())
    assert is_transformer(network) == transformer
    assert (patch_projection(network) is not None) == patches


def test_a_size_that_a_model_does_not_take_is_reported_when_it_is_used():
    with pytest.raises(UserError, match=r"^timm has no model 'vit_tinyy'"):
        build_encoder("timm/vit_tinyy", size=64)
    assert features_of(build_encoder("torchvision/inception_v3", size=32)) == 2048
