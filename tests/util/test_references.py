"""Networks that users wrote: found by `module:name`, in a run from its start to its export."""

import json
import sys

import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.errors import UserError
from hypersphere.nn import build_encoder
from hypersphere.util.references import import_reference, is_reference, reference_to

MODULE = """
import torch
from torch import nn

class Small(nn.Module):
    num_features = 24

    def __init__(self, channels=3):
        super().__init__()
        layers = nn.Conv2d(channels, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU()
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, images):
        return self.net(images)

class Parametrized(Small):
    def __init__(self):
        super().__init__(1)
        nn.utils.parametrizations.weight_norm(self.net[0])
        self.last = nn.utils.parametrizations.orthogonal(nn.Linear(24, 24, bias=False))

    def forward(self, images):
        return self.last(self.net(images))

class Lazy(Small):
    def __init__(self):
        super().__init__(1)
        self.net[0] = nn.LazyConv2d(24, 3)

def grey():
    return Small(1)

def lying():
    network = Small(1)
    network.num_features = 23
    return network

def unmeasured():
    return nn.Sequential(nn.Flatten(), nn.Unflatten(1, (8, 8)))

def nothing():
    return 3

class Several(Small):
    def forward(self, images):
        return self.net(images), images

class InPlace(Small):
    def forward(self, images):
        images *= 2
        return self.net(images)
"""


@pytest.fixture
def here(own_folder):
    """With a module in it."""
    (own_folder / "own_nets.py").write_text(MODULE)
    return own_folder


def top_level():
    return nn.Identity()


@pytest.mark.parametrize("name", ["module:name", "a.b_c:Class", "a:b.c", "modül:netz"])
def test_names_that_refer_to_something_written(name):
    assert is_reference(name)


@pytest.mark.parametrize("name", ["torchvision/resnet18", "C:/pictures", "s3://bucket/x.tar", ":a", "a:", "1:a", None])
def test_names_that_do_not(name):
    assert not is_reference(name)


def test_a_function_is_found_again_by_its_name():
    reference = reference_to(top_level)
    assert reference is not None
    assert import_reference(reference) is top_level
    assert import_reference("collections:OrderedDict.fromkeys") == __import__("collections").OrderedDict.fromkeys
    for hidden in (lambda: None, nn.Identity(), nn.Identity().forward, 3, "text"):
        assert reference_to(hidden) is None


def test_a_run_with_an_encoder_of_ones_own(here, capsys):
    options = ["--encoder", "own_nets:Small", "--epochs", "2", "--out", "run", "--hidden", "16", "--knn-every", "0"]
    assert main(["pretrain", "byol", "--data", "digits", *options]) == 0
    run = hs.load_run("run")
    assert type(run.encoder).__name__ == "Small"
    assert run.encode(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).shape == (2, 24)
    folder = here / "run" / "export"
    assert main(["export", "run"]) == 0
    card = json.loads((folder / "card.json").read_text())
    found: dict = {}
    lines = card["load"]["own_nets"]
    exec("\n".join(lines).replace('"encoder.safetensors"', repr(str(folder / "encoder.safetensors"))), found)
    for ours, theirs in zip(run.encoder.parameters(), found["model"].parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    for named in ("run/export", "run/export/encoder.safetensors", "run/checkpoint.pt"):
        capsys.readouterr()
        assert main(["diagnose", named, "--images", "64"]) == 0
        assert "features of 24 dimensions" in " ".join(capsys.readouterr().out.split())


def test_the_lines_of_the_card_load_weights_as_parametrizations_put_them_out(here):
    (here / "own_nets.py").write_text(MODULE)
    hs.pretrain("byol", "digits", encoder="own_nets:Parametrized", epochs=1, hidden=16, out="run", progress=False)
    folder, found = hs.export("run"), {}
    lines = json.loads((folder / "card.json").read_text())["load"]["own_nets"]
    exec("\n".join(lines).replace('"encoder.safetensors"', repr(str(folder / "encoder.safetensors"))), found)
    images = torch.randn(4, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(found["model"](images), hs.load("run").encoder(images))
    with pytest.raises(UserError, match="own_nets:Lazy is lazy: run a batch through it in the function that builds it"):
        hs.pretrain("byol", "digits", encoder="own_nets:Lazy", epochs=1)


def test_a_function_is_given_as_itself_in_python(here):
    sys.path.append(str(here))
    import own_nets

    run = hs.pretrain("simclr", data="digits", encoder=own_nets.grey, epochs=1, hidden=16, out="run", progress=False)
    assert run.config.encoder == "own_nets:grey"
    again = hs.pretrain(resume="run", progress=False)
    assert again.step == run.step


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("own_nets:lying", r"returned the shape \(2, 24\); its num_features promises \(2, 23\)"),
        ("own_nets:unmeasured", r"must return features of shape \(images, width\), got the shape \(1, 8, 8\)"),
        ("own_nets:nothing", "must return a torch.nn.Module, got int"),
        ("own_nets:nn", "must be a function or class that returns a network, got module"),
        ("own_nets:Several", "does not accept the .*the encoder must return a tensor of features, got tuple"),
        ("own_nets:InPlace", "own_nets:InPlace changes its input in place"),
        ("own_nets:gray", "there is no gray in own_nets: did you mean 'grey'"),
        ("own_notes:grey", "there is no module own_notes in this folder"),
        ("resnet18", "unknown encoder 'resnet18': did you mean 'torchvision/resnet18'"),
        ("resnet19", "unknown encoder 'resnet19': did you mean 'torchvision/resnet18'"),
        ("torchvison/resnet50", "unknown encoder 'torchvison/resnet50': did you mean 'torchvision/resnet50'"),
        ("digit", "unknown encoder 'digit': did you mean 'hypersphere/digits'"),
        ("what is this?", r"unknown encoder 'what is this\?' \(there are "),
    ],
)
def test_what_is_wrong_with_it_is_told(here, name, told):
    with pytest.raises(UserError, match=told):
        hs.pretrain("byol", data="digits", encoder=name, epochs=1)
    assert not (here / "runs").exists()


def test_shared_weights_are_exported(here):
    tied = """
class Tied(Small):
    def __init__(self):
        super().__init__(1)
        self.again = self.net[0]
"""
    (here / "own_nets.py").write_text(MODULE + tied)
    run = hs.pretrain("byol", data="digits", encoder="own_nets:Tied", epochs=1, hidden=16, out="run", progress=False)
    assert len(hs.load("run").fingerprint) == 64
    assert main(["export", "run"]) == 0
    inputs = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(hs.load("run/export").encoder(inputs), run.encoder(inputs))


def test_a_module_that_lacks_another_says_so_itself(here):
    (here / "own_nets.py").write_text("import nothing_of_this_name")
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
        build_encoder("own_nets:grey")
