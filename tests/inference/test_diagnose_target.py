"""Networks of any kind, and the images that they are shown."""

import math
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere import diagnose
from hypersphere.errors import UserError
from hypersphere.nn.libraries import build_model
from tests.pictures import untrained


def test_what_is_around_a_network_is_not_looked_at():
    body = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    ends = nn.Conv2d(1, 8, 3), nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network = nn.Sequential(OrderedDict(stem=ends[0], body=body, end=ends[1]))
    wanted = diagnose(network, images=16)
    assert [layer.name for layer in wanted.weights] == ["encoder.stem", "encoder.body.0", "encoder.body.2"]
    for wrapped in (nn.DataParallel(network), torch.compile(network), torch.compile(nn.DataParallel(network))):
        found = diagnose(wrapped, images=16)
        assert (found.of, found.weights, found.blocks) == (wanted.of, wanted.weights, wanted.blocks)
    network.body = torch.compile(body, backend="eager")
    assert diagnose(network, images=16).weights == wanted.weights


def test_models_by_name():
    found = diagnose("resnet18", images=np.int64(4), device="cpu")
    assert found.of.startswith("torchvision/resnet18, randomly initialized: 4 held-out images of digits")
    assert [block.name for block in found.blocks] == ["layer1", "layer2", "layer3", "layer4", "output"]
    assert len(found.weights) == 20
    assert all(layer.times == pytest.approx(1, abs=0.05) for layer in found.weights)  # neurons as they are drawn
    dead = build_model("torchvision/resnet18")
    torch.nn.init.zeros_(dead.conv1.weight)
    found = diagnose(dead, images=4)
    assert found.blocks == []
    assert found.verdict == "not healthy: see alignment, zero rows"
    torch.nn.init.constant_(dead.conv1.weight, math.nan)
    with pytest.raises(UserError, match="features have NaN or infinity; check the weights"):
        diagnose(dead, images=4)
    vit = build_model("torchvision/vit_b_32")
    assert vit.num_features == 768
    assert vit(torch.zeros(1, 3, 224, 224)).shape == (1, 768)


def test_a_model_of_timm():
    pytest.importorskip("timm")
    found = diagnose("timm/test_vit", images=4, device="cpu")
    assert any(block.name.startswith("blocks") for block in found.blocks)


class Attending(nn.Module):
    num_features = 12

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, 12, kernel_size=4, stride=4)
        self.layer = nn.TransformerEncoderLayer(12, nhead=2, dim_feedforward=24, batch_first=True)

    def forward(self, images):
        return self.layer(self.patches(images).flatten(2).transpose(1, 2)).mean(dim=1)


def test_attention_is_diagnosed():
    found = hs.diagnose(Attending(), images=64)
    (layer,) = (layer for layer in found.weights if layer.name.endswith("self_attn"))
    assert layer.times == pytest.approx(1, abs=0.5)


class Shown(nn.Module):
    """Keeps the shapes of what it is shown, and says of itself what it is told to."""

    def __init__(self, channels=3, stride=1, only=None, **said):
        super().__init__()
        self.stem, self.only, self.seen = nn.Conv2d(channels, 6, kernel_size=3, stride=stride), only, set()
        vars(self).update(said)

    def forward(self, images):
        assert self.only in (None, images.shape[2]), "Input height does not match"
        self.seen.add(tuple(images.shape[1:]))
        return self.stem(images).mean((2, 3))


@pytest.mark.parametrize(
    ("network", "side"),
    [
        (Shown(input_size=16), 16),
        (Shown(pretrained_cfg={"input_size": (3, 24, 24)}), 24),  # of timm
        (Shown(default_cfg={"input_size": (3, 24, 24)}), 24),
        (Shown(pretrained_cfg={"input_size": (3, 24, 24)}, patch_embed=SimpleNamespace(img_size=(12, 12))), 12),
        (Shown(image_size=18), 18),  # a ViT of torchvision
        (Shown(config=SimpleNamespace(image_size=[20, 20])), 20),  # of Hugging Face
        (Shown(), 32),
        (Shown(stride=2), 224),
        (Shown(channels=1, stride=2), 32),
        (Shown(stride=2, only=32), 32),
        (Shown(only=8), 8),
    ],
)
def test_images_have_the_size_of_the_networks_input(network, side):
    hs.diagnose(network, images=4)
    assert network.seen == {(network.stem.in_channels, side, side)}


def test_the_size_can_be_said_and_is_else_that_of_the_chosen_data():
    for options, side in (({"size": 10}, 10), ({"size": 10, "data": "digits"}, 10), ({"data": "digits"}, 8)):
        network = Shown()
        hs.diagnose(network, images=4, **options)
        assert network.seen == {(3, side, side)}
    with pytest.raises(UserError, match="`size` must be a whole number of at least 1, got 0"):
        hs.diagnose(network, size=0)
    told = r"^Shown does not take 3 × 10 × 10 images \(Input height does not match\): pass the `size` that it takes$"
    with pytest.raises(UserError, match=told):
        hs.diagnose(Shown(only=9), size=10)


class Giving(nn.Module):
    """Blocks of tuples and an output of another kind, as Hugging Face's models have them."""

    def __init__(self, give):
        super().__init__()
        self.layers, self.give = nn.ModuleList([Tokens(3), Tokens(5)]), give

    def forward(self, images):
        tokens = images.flatten(2).transpose(1, 2)
        for layer in self.layers:
            (tokens,) = layer(tokens)
        return self.give(tokens)


class Tokens(nn.Module):
    def __init__(self, width):
        super().__init__()
        torch.manual_seed(width)
        self.inner = nn.Sequential(nn.Linear(width, 5), nn.GELU())

    def forward(self, x):
        return (self.inner(x),)


@pytest.mark.parametrize(
    "give",
    [
        lambda tokens: tokens,
        lambda tokens: (tokens, "attention"),
        lambda tokens: SimpleNamespace(last_hidden_state=tokens, pooler_output=None),
        lambda tokens: OrderedDict(last_hidden_state=0 * tokens, pooler_output=tokens.mean(1)),
        lambda tokens: {"logits": tokens.mean(1)},
    ],
)
def test_features_are_found_in_what_a_network_gives(give):
    found = hs.diagnose(Giving(give), images=4, size=4)
    assert found.findings == hs.diagnose(Giving(lambda tokens: tokens.mean(1)), images=4, size=4).findings
    assert [block.name for block in found.blocks] == ["layers.0", "layers.1", "output"]
    assert found.blocks[1].energy == pytest.approx(found.blocks[2].energy)


def test_a_network_without_features_and_one_in_half_precision():
    with pytest.raises(
        UserError, match=r"does not take .* \(the network returned str, not features: return a tensor\)"
    ):
        hs.diagnose(Giving(str), size=4)
    network = Shown(input_size=8)
    wanted = hs.diagnose(network, images=16).findings[1].value
    assert hs.diagnose(network.bfloat16(), images=16).findings[1].value == pytest.approx(wanted, rel=0.05)


def test_frozen_layers_are_diagnosed_and_tied_ones_once():
    network = nn.Sequential(nn.Conv2d(3, 9, 3, groups=3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(9, 9))
    network.append(nn.Linear(9, 9))
    network[4].weight = network[3].weight
    wanted = hs.EnergyRegularizer(network, metric="geodesic").per_layer()
    network[0].requires_grad_(False)
    for _ in range(2):
        found = hs.diagnose(network, images=4, size=8).weights
        assert [layer.name for layer in found] == ["encoder.0", "encoder.3"]
        assert [layer.energy for layer in found] == pytest.approx([wanted["0"].item(), wanted["3"].item()])
        network.requires_grad_(False)
    assert hs.diagnose(nn.AdaptiveAvgPool2d(2), images=4).weights == []


def test_images_of_ones_own():
    pixels = torch.randint(0, 256, (5, 3, 20, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    network = Shown()
    found = hs.diagnose(network, data=pixels)
    assert found.of == "Shown: 5 given images; features of 6 dimensions"
    assert network.seen == {(3, 20, 20)}
    for same in (pixels.numpy(), pixels.double() / 255, pixels.half() / 255):
        assert hs.diagnose(network, data=same).findings == found.findings
    assert hs.diagnose(network, data=pixels, images=3).findings == hs.diagnose(network, data=pixels[::2]).findings
    assert hs.diagnose(network, data=pixels, size=16).findings != found.findings
    grey = Shown(channels=1)
    hs.diagnose(grey, data=pixels)
    assert grey.seen == {(1, 20, 20)}


def test_images_of_ones_own_have_the_colours_that_the_encoder_knows(tmp_path):
    run = hs.load_run(untrained(tmp_path, "digits"), "cpu")
    blank = torch.full((2, 1, 12, 12), 51, dtype=torch.uint8)
    for target, network, mean, std in (
        (colours := Shown(), colours, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        (run, run.encoder, (0.3053,), (0.3760,)),
    ):
        seen = []
        hook = network.register_forward_pre_hook(lambda module, given, seen=seen: seen.append(given[0]))
        hs.diagnose(target, data=blank)
        hook.remove()
        for channel, m, s in zip(seen[0].unbind(1), mean, std, strict=True):
            torch.testing.assert_close(channel, torch.full_like(channel, (0.2 - m) / s))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (torch.zeros(4, 3, 8), r"N × C × H × W, got torch.float32 of shape \(4, 3, 8\)"),
        (torch.zeros(4, 2, 8, 8), "takes images with 3 channels, but these have 2"),
        (torch.zeros(1, 3, 8, 8), "at least two images"),
        (torch.zeros(4, 3, 8, 8, dtype=torch.long), "must be uint8, or floats from 0 to 1"),
        (torch.full((4, 3, 8, 8), 1.5), "that are not normalized, got"),
        (torch.full((4, 3, 8, 8), math.nan), "that are not normalized, got"),
        (5, "must be a name"),
    ],
)
def test_images_that_cannot_be_shown(data, told):
    with pytest.raises(UserError, match=told):
        hs.diagnose(Shown(), data=data)
