"""What an encoder starts from: files, runs, exported folders, and the weights of libraries."""

import json

import pytest
import safetensors.torch
import timm
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torchvision import models

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.config import recipe
from hypersphere.errors import UserError
from hypersphere.inference.exporting import export
from hypersphere.inference.loading import plain
from hypersphere.nn import build_encoder
from hypersphere.nn.weights import load_tensors
from hypersphere.runs.build import build_method
from hypersphere.runs.run import initial_encoder
from hypersphere.train import Trainer
from tests.pictures import draw, untrained

SMALL = {"hidden": 16, "projection": 8, "epochs": 1, "device": "cpu", "knn_every": 0, "progress": False, "seed": 1}
RESNET = {"encoder": "torchvision/resnet18", "stem": "imagenet", "hidden": 16, "projection": 8}


def noisy(network, seed=7):
    """All weights and statistics random, so that none is what a new network has."""
    draw = torch.Generator().manual_seed(seed)
    for tensor in network.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=draw) + 0.1)
    return network


def begun(config, channels=3):
    torch.manual_seed(config.seed)
    return build_method(config, channels, begin=True)


def assert_same(network, wanted):
    found = network.state_dict()
    assert found.keys() <= wanted.keys()
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in found.items())


@pytest.fixture
def digits(tmp_path):
    """A run on digits, of seed 0, its encoder's weights, and a file of them beside a layer that classifies."""
    run = untrained(tmp_path / "old", "digits")
    weights = hs.load_run(run, "cpu").encoder.state_dict()
    file = tmp_path / "weights.safetensors"
    safetensors.torch.save_file({**weights, "fc.weight": torch.zeros(10, 128), "fc.bias": torch.zeros(10)}, file)
    return run, weights, file


@pytest.mark.parametrize("method", ["byol", "moco", "dino", "obow", "simclr"])
def test_the_encoder_and_its_copy_start_from_a_file_to_the_bit(digits, capsys, method):
    _, wanted, file = digits
    config = recipe(method, "digits", init=str(file), hidden=16, projection=8, seed=1)
    found = begun(config, channels=1)
    assert_same(found.encoder, wanted)
    copies = {name: tensor for name, tensor in found.state_dict().items() if name.endswith("features.0.weight")}
    assert len(copies) == (1 if method == "simclr" else 2)
    assert all(torch.equal(tensor, wanted["features.0.weight"]) for tensor in copies.values())
    told = f"hypersphere/digits starts from {file}; ignored, since the encoder has no such layer: fc.bias, fc.weight\n"
    assert capsys.readouterr().err.endswith(told)


def test_every_way_to_name_weights(digits, tmp_path):
    run, wanted, file = digits
    torch.save({"state_dict": {f"module.encoder.{name}": x for name, x in wanted.items()}}, tmp_path / "other.pt")
    for init in (file, run, str(run), export(run, tmp_path / "exported"), tmp_path / "other.pt"):
        config = recipe("byol", "digits", init=init, seed=1)
        assert_same(initial_encoder(config), wanted)
        assert config.init == str(init)
        assert config.hash != recipe("byol", "digits", seed=1).hash


@pytest.mark.parametrize("name", ["torchvision/resnet18", "torchvision/regnet_y_400mf", "timm/resnet10t"])
def test_weights_of_a_library(monkeypatch, capsys, name):
    """Which are asked for, and none else, when a run begins; those that load a run ask for none."""
    asked = []

    def torchvisions(model, *, weights=None, make=models.get_model, **options):
        asked.append(weights)
        return noisy(make(model, **options)) if weights == "DEFAULT" else make(model, **options)

    def timms(model, *, pretrained=False, make=timm.create_model, **options):
        asked.append("DEFAULT" if pretrained else None)
        return noisy(make(model, **options)) if pretrained else make(model, **options)

    monkeypatch.setattr(models, "get_model", torchvisions)
    monkeypatch.setattr(timm, "create_model", timms)
    library, _, model = name.partition("/")
    wanted = noisy(models.get_model(model) if library == "torchvision" else timm.create_model(model, num_classes=0))
    config = recipe("byol", "cifar10", **{**RESNET, "encoder": name}, init="pretrained")
    asked.clear()
    method = begun(config)
    assert asked.count("DEFAULT") == 1
    assert_same(method.encoder, wanted.state_dict())
    assert_same(method.target[0], wanted.state_dict())
    assert capsys.readouterr().err == f"hypersphere: {name} starts from pretrained\n"
    asked.clear()
    torch.manual_seed(config.seed)
    other = build_method(config, 3)
    assert "DEFAULT" not in asked
    assert torch.equal(method.projector[0].weight, other.projector[0].weight)  # the seed's, in either case


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"stem": "cifar"},
            r"conv1.weight has shape \(64, 3, 7, 7\), but \(64, 3, 3, 3\) in this encoder: use `stem` imagenet$",
        ),
        ({"data": "digits"}, r"conv1.weight has shape .*; it is for images of 3 channels, but these have 1$"),
        ({"norm": "none"}, r"has BatchNorm, but `norm` none has none: use `norm` batch$"),
        ({"norm": "group"}, r"has BatchNorm, but `norm` group has none: use `norm` batch$"),
        ({"encoder": "torchvision/resnet50"}, r"tensors are missing, such as layer1.0.conv3.weight$"),
    ],
)
def test_weights_that_do_not_fit_are_told_in_a_line(tmp_path, options, message):
    torch.save(models.resnet18().state_dict(), tmp_path / "w.pth")
    config = recipe("byol", **{"data": "cifar10", **RESNET, "init": tmp_path / "w.pth", **options})
    with pytest.raises(UserError, match=rf"^`init` \S+w.pth .*{message}"):
        begun(config, 1 if config.data == "digits" else 3)


def test_weights_of_a_run_of_another_encoder_name_it(digits):
    run, _, file = digits
    named = "; its encoder is hypersphere/digits, not torchvision/resnet18: pass `encoder` hypersphere/digits$"
    with pytest.raises(UserError, match=rf"^`init` .* is of another architecture: .* are missing, .*{named}"):
        begun(recipe("byol", "digits", init=str(run), **RESNET), channels=1)
    with pytest.raises(UserError, match=r"are missing, such as [\w.]+$"):
        begun(recipe("byol", "digits", init=str(file), **RESNET), channels=1)


def test_an_export_starts_a_run_with_standardized_weights_again(tmp_path):
    """Where they are plain, as they come out."""
    options = {"hidden": 16, "projection": 8, "norm": "group"}
    old = begun(recipe("byol", "digits", **options), 1).encoder
    safetensors.torch.save_file(plain(old).state_dict(), tmp_path / "encoder.safetensors")
    new = begun(recipe("byol", "digits", **options, seed=2, init=tmp_path / "encoder.safetensors"), 1).encoder
    x = torch.rand(5, 1, 8, 8)
    torch.testing.assert_close(new(x), old(x), rtol=1e-4, atol=1e-5)


def test_parametrizations_of_torch_are_given_plain_weights():
    def network(seed):
        torch.manual_seed(seed)
        layers = parametrizations.weight_norm(nn.Linear(6, 5)), parametrizations.spectral_norm(nn.Linear(5, 4))
        return nn.Sequential(*layers, parametrizations.orthogonal(nn.Linear(4, 4)))

    old, new = network(0), network(1).eval()
    for _ in range(100):  # so that its spectral norm is one
        old(torch.zeros(1, 6))
    old.eval()
    assert load_tensors(new, {**plain(old).state_dict(), "fc.bias": torch.zeros(2)}, "old") == ["fc.bias"]
    x = torch.randn(7, 6)
    torch.testing.assert_close(new(x), old(x), rtol=0.02, atol=0.005)  # a spectral norm is iterated
    assert not any(module.training for module in new.modules())
    with pytest.raises(
        UserError, match=r"^odd is of another architecture: 0.weight has shape \(5, 7\), but \(5, 6\) in this encoder$"
    ):
        load_tensors(new, {**plain(old).state_dict(), "0.weight": torch.zeros(5, 7)}, "odd")
    with pytest.raises(UserError, match=r"^odd has plain weights, which Orthogonal cannot "):
        load_tensors(new, {**plain(old).state_dict(), "2.weight": torch.ones(4, 4)}, "odd")
    with pytest.raises(UserError, match=r"^odd has plain weights, which WeightNorm cannot represent"):  # but NaN
        load_tensors(new, {**plain(old).state_dict(), "0.weight": torch.zeros(5, 6)}, "odd")


def test_a_parametrized_layer_may_be_there_twice_and_behind_a_prefix():
    layer = parametrizations.weight_norm(nn.Linear(4, 4, bias=False))
    model = nn.Sequential(layer, nn.ReLU(), layer)
    weight = torch.randn(4, 4)
    assert load_tensors(model, {"encoder.0.weight": weight, "encoder.2.weight": weight}, "file") == []
    torch.testing.assert_close(model[2].weight, weight)


def test_weights_for_small_images_are_told(tmp_path):
    torch.save(build_encoder("torchvision/resnet18", stem="cifar").state_dict(), tmp_path / "w.pt")
    with pytest.raises(UserError, match=r"use `stem` cifar$"):
        begun(recipe("byol", "cifar10", **RESNET, init=tmp_path / "w.pt"))


def test_mistakes_at_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw(tmp_path / "in", 12)
    (tmp_path / "new").mkdir()
    (tmp_path / "new/run.json").write_text(json.dumps({"config": {}}))
    (tmp_path / "junk.pt").write_bytes(b"junk")
    words = ["pretrain", "byol", "--epochs", "1", "--device", "cpu", "--data"]
    for data, init, told in [
        ("in", "gone.pt", "--init gone.pt is not a file: expected pretrained, a file of weights, the folder of a run,"),
        ("in", "in", "--init in is not a file: expected"),
        ("in", "new", "--init new has no checkpoint.pt: expected"),
        ("in", "junk.pt", "junk.pt is damaged, or holds more than tensors"),
        ("digits", "pretrained", "--init pretrained needs an encoder of torchvision or timm, got hypersphere/digits"),
    ]:
        assert main([*words, data, "--init", init]) == 2
        (line,) = [line for line in capsys.readouterr().err.splitlines() if told in line]
        assert line.startswith("hypersphere: ")
    assert not (tmp_path / "runs").exists()  # nothing was begun


def weights(run):
    return torch.cat([p.detach().flatten() for p in run.method.parameters()])


def killed_in(update, monkeypatch, **options):
    """A run whose so-manieth update never ends."""

    def until_then(trainer, *given, made=Trainer.update):
        assert trainer.step + 1 < update, "killed"
        return made(trainer, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", until_then)
        with pytest.raises(AssertionError, match="killed"):
            hs.pretrain("byol", **options)


@pytest.mark.parametrize(("update", "saved"), [(1, 0), (7, 5)])
def test_a_run_goes_on_without_the_file(digits, tmp_path, monkeypatch, update, saved):
    """Killed in the first update, or later: as if never stopped."""
    _, wanted, file = digits
    options = {**SMALL, "data": "digits", "init": file, "save_every": 5}
    whole = hs.pretrain("byol", out=tmp_path / "whole", **options)
    killed_in(update, monkeypatch, out=tmp_path / "part", **options)
    file.unlink()
    part = hs.load_run(tmp_path / "part", "cpu")
    assert part.step == saved
    if not saved:
        assert_same(part.encoder, wanted)
    went_on = hs.pretrain(resume=tmp_path / "part", progress=False)
    assert torch.equal(weights(went_on), weights(whole))
    with pytest.raises(UserError, match=r"its init is '\S+weights.safetensors', not 'other.pt'"):
        hs.pretrain(resume=tmp_path / "part", init="other.pt", progress=False)
