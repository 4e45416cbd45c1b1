"""Energies of the layers of models, state_dicts and files, and their changes."""

import json
import math

import pytest
import safetensors.torch
import torch
import torchvision
from torch import nn

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.errors import UserError


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return torchvision.models.resnet18(num_classes=10)


def test_of_a_model_its_state_and_its_file(model, tmp_path):
    found = hs.energies(model.requires_grad_(False))  # frozen layers count
    assert len(found) == 21
    assert found["layer1.0.conv1"].neurons == 64
    assert found["layer1.0.conv1"].dimensions == 576
    for name in ("conv1", "layer4.1.conv2", "fc"):
        weight = model.get_submodule(name).weight.flatten(1)
        assert found[name].energy == pytest.approx(hs.hyperspherical_energy(weight, 2, "geodesic").item(), rel=1e-6)
        assert found[name].excess == pytest.approx(found[name].energy / found[name].even - 1)
    random = hs.hyperspherical_energy(torch.randn(2000, 512), 2, "geodesic").item()
    assert found["fc"].even == pytest.approx(random, rel=1e-3)
    assert hs.energies(model.state_dict()) == found
    safetensors.torch.save_file(model.state_dict(), tmp_path / "a.safetensors")
    torch.save(model.state_dict(), tmp_path / "a.pt")
    assert hs.energies(tmp_path / "a.pt") == found
    streamed = hs.energies(str(tmp_path / "a.safetensors"))
    assert {name: streamed[name] for name in found} == found  # in the order of the file


def test_changes(model):
    tuned = torchvision.models.resnet18(num_classes=7)
    tuned.load_state_dict({**model.state_dict(), "fc.weight": tuned.fc.weight, "fc.bias": tuned.fc.bias})
    angle = 0.01
    with torch.no_grad():  # turn every neuron of a layer by a known angle
        weight = tuned.layer1[0].conv1.weight.flatten(1)
        other = torch.randn_like(weight)
        other -= (other * weight).sum(1, keepdim=True) / weight.square().sum(1, keepdim=True) * weight
        other *= weight.norm(dim=1, keepdim=True) / other.norm(dim=1, keepdim=True)
        turned = math.cos(angle) * weight + math.sin(angle) * other
        tuned.layer1[0].conv1.weight.copy_(turned.view_as(tuned.layer1[0].conv1.weight))
    found = hs.compare(model, tuned)
    assert "fc" not in found  # of another shape
    assert found["layer1.0.conv1"].turned == pytest.approx(angle, rel=1e-3)
    assert found["layer1.0.conv2"].turned == 0
    assert found["layer1.0.conv2"].change == 0
    with pytest.raises(UserError, match="no layer of the same name"):
        hs.compare(model, nn.Linear(3, 4))
    with pytest.raises(UserError, match="must be a module, a state_dict or the path of a file, got NoneType"):
        hs.energies(None)
    with pytest.raises(UserError, match="no layer with several neurons"):
        hs.energies({"norm.weight": torch.ones(4)})


def test_layers_in_one_model_only_are_told(capsys):
    def layers(**widths):
        return {f"{name}.weight": torch.randn(4, width) for name, width in widths.items()}

    before = layers(same=3, wider=3, a=3, b=3, c=3)
    assert list(hs.compare(before, layers(same=3, wider=5, new=3))) == ["same"]
    told = "left out: 4 before (wider, a, b, …), 2 after (wider, new)\n"
    assert capsys.readouterr().err.endswith(told)
    hs.compare(before, before)
    assert not capsys.readouterr().err


def test_half_precision_is_within_rounding_of_double():
    weight = torch.randn(300, 64).bfloat16()
    wanted = hs.hyperspherical_energy(weight.double(), 2, "geodesic").item()
    assert hs.energies({"a.weight": weight})["a"].energy == pytest.approx(wanted, rel=1e-4)


def test_the_command(model, tmp_path, capsys):
    safetensors.torch.save_file(model.state_dict(), tmp_path / "a.safetensors")
    changed = {name: t + 0.01 * torch.randn_like(t) if t.ndim > 1 else t for name, t in model.state_dict().items()}
    safetensors.torch.save_file(changed, tmp_path / "b.safetensors")
    assert main(["energies", str(tmp_path / "a.safetensors"), "-o", str(tmp_path / "a.json")]) == 0
    out = capsys.readouterr().out
    assert "layer4.1.conv2" in out
    assert "21 layers" in out
    assert len(json.loads((tmp_path / "a.json").read_text())) == 21
    assert main(["energies", str(tmp_path / "b.safetensors"), "--against", str(tmp_path / "a.safetensors")]) == 0
    assert "turned" in capsys.readouterr().out
    (tmp_path / "c.safetensors").write_bytes(b"junk")
    (tmp_path / "empty").mkdir()
    for file, message in (
        ("c.safetensors", "cannot be read as .safetensors"),
        ("d.pt", "does not exist: expected a file of weights, .safetensors or .pt"),
        ("empty", "empty is a folder: expected a file of weights"),
        ("", f" is a folder: pass {tmp_path / 'a.safetensors'}"),
    ):
        assert main(["energies", str(tmp_path / file)]) == 2
        assert message in capsys.readouterr().err
