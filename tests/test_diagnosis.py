"""From whatever names a representation to what is said of it."""

import json
import math
import re
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere import diagnose
from hypersphere.cli import main
from hypersphere.errors import UserError
from hypersphere.nn.weights import load_weights
from hypersphere.nn.zoo import build_model
from hypersphere.report.diagnosis import print_diagnosis

SMALL = {"hidden": 32, "projection": 8, "epochs": 1, "batch": 256, "device": "cpu", "progress": False}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return hs.pretrain("byol-mhe", data="digits", out=tmp_path_factory.mktemp("runs") / "a", knn_every=1, **SMALL)


def test_a_run(run, capsys, tmp_path):
    assert main(["diagnose", str(run.path), "--out", str(tmp_path / "d.json"), "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert "300 held-out images of digits; features of 128 dimensions" in shown.replace("\n", " ").replace("  ", " ")
    for name in ("alignment", "uniformity (G2)", "effective rank", "RankMe", "density on the circle", "predictor.2"):
        assert name in shown
    kept = json.loads((tmp_path / "d.json").read_text())
    layers = {layer["name"]: layer for layer in kept["weights"]}
    energies = hs.EnergyRegularizer(run.method, metric="geodesic").per_layer()
    assert layers.keys() == energies.keys()
    assert layers["projector.0"]["energy"] == pytest.approx(energies["projector.0"].item(), rel=1e-5)
    logged = run.metrics[-1]
    assert {block["name"]: block["energy"] for block in kept["blocks"]}["output"] == pytest.approx(
        logged["energy/output"], rel=1e-3
    )
    assert logged["effective_rank"] > 1
    assert 0 < logged["alignment"] < 4


def test_a_checkpoint_of_a_run_and_of_others(run, tmp_path):
    whole = diagnose(run)
    inside = diagnose(run.path / "checkpoint.pt", encoder="hypersphere/digits", images=300, device="cpu")
    assert inside.findings == whole.findings
    state = {f"module.backbone.{name}": x for name, x in run.encoder.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": {**state, "module.head.weight": torch.ones(2)}}, tmp_path / "a.pth")
    assert diagnose(tmp_path / "a.pth", encoder="hypersphere/digits", images=300).findings == whole.findings
    from safetensors.torch import save_file

    save_file(run.encoder.state_dict(), tmp_path / "a.safetensors")
    assert diagnose(tmp_path / "a.safetensors", encoder="hypersphere/digits", images=300).findings == whole.findings


class Runs:
    def __reduce__(self):
        return (open, ("pwned", "w"))


def test_files_that_are_no_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"model": Runs()}, "evil.pt")
    torch.save({"w": torch.ones(3)}, "other.pt")
    (tmp_path / "junk.pt").write_bytes(b"junk")
    (tmp_path / "junk.safetensors").write_bytes(b"junk")
    (tmp_path / "empty.pt").write_bytes(b"")
    encoder = nn.Linear(2, 2)
    for name, told in (
        ("evil.pt", "could run code"),
        ("other.pt", "another architecture: 2 of 2 tensors are not there, such as weight"),
        ("junk.pt", "damaged"),
        ("junk.safetensors", "cannot be read"),
        ("empty.pt", "is empty"),
    ):
        with pytest.raises(UserError, match=told):
            load_weights(encoder, tmp_path / name)
    assert not (tmp_path / "pwned").exists()


def test_embeddings_in_memory_and_in_a_file(tmp_path):
    x = np.random.default_rng(0).normal(size=(200, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    assert diagnose(tmp_path / "x.npy").findings == diagnose(torch.from_numpy(x)).findings == diagnose(x).findings
    assert diagnose(x).verdict == "healthy"
    np.save(tmp_path / "x.npy", x.astype(np.float64))
    assert diagnose(tmp_path / "x.npy").findings == diagnose(x).findings
    with pytest.raises(UserError, match="`encoder` is about an encoder: embeddings needs none"):
        diagnose(x, encoder="resnet18")
    assert diagnose(np.ones((50, 8)) + 1e-5 * x[:50, :8]).verdict.startswith("not healthy: see uniformity")


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
    assert found.of.startswith("torchvision/resnet18, as it is initialized: 4 held-out images of digits")
    assert [block.name for block in found.blocks] == ["layer1", "layer2", "layer3", "layer4", "output"]
    assert len(found.weights) == 20
    assert all(layer.times == pytest.approx(1, abs=0.05) for layer in found.weights)  # neurons as they are drawn
    dead = build_model("torchvision/resnet18")
    torch.nn.init.zeros_(dead.conv1.weight)
    found = diagnose(dead, images=4)
    assert found.blocks == []
    assert found.verdict == "not healthy: see alignment, zero rows"
    torch.nn.init.constant_(dead.conv1.weight, math.nan)
    with pytest.raises(UserError, match="its features hold NaN or infinity; do its weights"):
        diagnose(dead, images=4)
    vit = build_model("torchvision/vit_b_32")
    assert vit.num_features == 768
    assert vit(torch.zeros(1, 3, 224, 224)).shape == (1, 768)


def test_a_model_of_timm():
    pytest.importorskip("timm")
    found = diagnose("timm/test_vit", images=4, device="cpu")
    assert any(block.name.startswith("blocks") for block in found.blocks)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "say what to diagnose"),
        (["resnet81"], "'resnet81' is not known: did you mean 'resnet18'?"),
        (["resnet18", "-o", "."], "--out . is a folder: name a file in it"),
        (["torchvision/resnet81"], "did you mean 'resnet18'"),
        (["nothere.npy"], "there is no file nothere.npy"),
        (["nothere.pt"], "there is no file nothere.pt"),
        (["."], ". is no run, no checkpoint"),
        (["resnet18", "--images", "1"], "--images must be a whole number of at least 2"),
        (["resnet18", "--data", "digit"], "did you mean 'digits'"),
    ],
)
def test_mistakes_are_one_line(words, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["diagnose", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert len(error.strip().splitlines()) == 1


def test_a_run_that_collapses_can_be_stopped(tmp_path):
    options = {**SMALL, "epochs": 6, "norm": "none", "lr": 0.05, "knn_every": 1, "on_collapse": "stop"}
    with pytest.raises(UserError, match=r"collapsed by epoch .*stopped, and kept in"):
        hs.pretrain("byol", data="digits", out=tmp_path / "a", **options)
    assert diagnose(tmp_path / "a", device="cpu").verdict.startswith("not healthy")


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
    with pytest.raises(UserError, match="`size` must be a whole number of at least 1, not 0"):
        hs.diagnose(network, size=0)
    told = r"^Shown does not take 3 × 10 × 10 images \(Input height does not match\): say the `size` it takes$"
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
    with pytest.raises(UserError, match=r"does not take .* \(it puts out str, no features\)"):
        hs.diagnose(Giving(str), size=4)
    network = Shown(input_size=8)
    wanted = hs.diagnose(network, images=16).findings[1].measured.value
    assert hs.diagnose(network.bfloat16(), images=16).findings[1].measured.value == pytest.approx(wanted, rel=0.05)


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
    assert found.of == "Shown: 5 images given; features of 6 dimensions"
    assert network.seen == {(3, 20, 20)}
    for same in (pixels.numpy(), pixels.double() / 255, pixels.half() / 255):
        assert hs.diagnose(network, data=same).findings == found.findings
    assert hs.diagnose(network, data=pixels, images=3).findings == hs.diagnose(network, data=pixels[::2]).findings
    assert hs.diagnose(network, data=pixels, size=16).findings != found.findings
    grey = Shown(channels=1)
    hs.diagnose(grey, data=pixels)
    assert grey.seen == {(1, 20, 20)}


def test_images_of_ones_own_have_the_colours_that_the_encoder_knows(run):
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
        (torch.zeros(4, 3, 8), r"N × C × H × W with C 1 or 3, not torch.float32 of shape \(4, 3, 8\)"),
        (torch.zeros(4, 2, 8, 8), "with C 1 or 3"),
        (torch.zeros(1, 3, 8, 8), "two images or more"),
        (torch.zeros(4, 3, 8, 8, dtype=torch.long), "bytes .uint8., or floats from 0 to 1"),
        (torch.full((4, 3, 8, 8), 1.5), "not normalized yet"),
        (torch.full((4, 3, 8, 8), math.nan), "not normalized yet"),
        (5, "must be a name"),
    ],
)
def test_images_that_cannot_be_shown(data, told):
    with pytest.raises(UserError, match=told):
        hs.diagnose(Shown(), data=data)


def test_keywords_that_are_not_known_are_named():
    for target in (Shown(), torch.randn(8, 4)):
        with pytest.raises(TypeError, match="unexpected keyword argument 'imgaes'"):
            hs.diagnose(target, imgaes=4)
    with pytest.raises(UserError, match="`data` is about an encoder"):
        hs.diagnose(torch.randn(8, 4), data=torch.zeros(4, 3, 8, 8))


def test_what_is_written_of_few_dimensions_is_json():
    def refuse(number):
        raise AssertionError(f"{number} is not JSON")

    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3), nn.Linear(3, 8))
    kept = json.loads(json.dumps(hs.diagnose(network, images=8, size=4).to_json()), parse_constant=refuse)
    assert [layer["even"] for layer in kept["weights"]] == [None, None]
    assert kept["blocks"][-1]["even"] > 0


def test_a_diagnosis_in_python_reads_as_at_the_terminal(capsys):
    """Of a network without convolutions, whose images are as they are given; two outputs have no even energy."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))
    found = hs.diagnose(network, data=torch.rand(64, 1, 4, 4))
    print_diagnosis(found)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == str(found).splitlines()
    assert re.search(r"^  output +–  effective rank \d", str(found), re.MULTILINE)
    assert f"{found.weights[0].times:.4g}" in str(found)
    assert str(found).splitlines()[0] == "Sequential: 64 images given; features of 2 dimensions"


class Frame:
    """What a DataFrame has of an array."""

    def __init__(self, x):
        self.x = x

    def __array__(self, dtype=None, copy=None):
        return self.x


def test_embeddings_in_memory_are_an_array_or_what_can_be_one():
    x = np.random.default_rng(0).normal(size=(50, 4))
    wanted = hs.diagnose(x)
    for same in (torch.from_numpy(x), Frame(x), x.tolist(), tuple(map(tuple, x)), [torch.from_numpy(row) for row in x]):
        assert hs.diagnose(same).findings == wanted.findings
    assert wanted.numbers["uniformity (G2)"] == pytest.approx(hs.uniformity(torch.from_numpy(x)).item(), rel=1e-5)
    assert wanted.numbers.keys() == wanted.to_json()["findings"].keys()


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({"a": 1}, "diagnose looks at embeddings N × D, a run, a network, or the name or path of one, not at a dict"),
        (None, "diagnose looks at .*, not at a NoneType"),
        (len, "diagnose looks at .*, not at a builtin_function_or_method"),
        ([[1.0, 2.0], [3.0]], "these are no rows, or not as long as each other"),
        (torch.ones(3, 4, dtype=torch.complex64), "holds complex64: embeddings are numbers"),
        (["a", "b"], "embeddings are numbers"),
    ],
)
def test_what_cannot_be_looked_at_is_told(target, told):
    with pytest.raises(UserError, match=told):
        hs.diagnose(target)
    with pytest.raises(UserError, match=r"`images` must be a whole number of at least 2, not 3.5"):
        hs.diagnose(np.ones((3, 3)), images=3.5)
