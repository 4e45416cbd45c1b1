"""From whatever names a representation to what is said of it."""

import json
import re

import numpy as np
import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere import diagnose
from hypersphere.cli import main
from hypersphere.errors import UserError
from hypersphere.nn.weights import load_weights
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
        ("other.pt", "another architecture: 2 of 2 tensors are missing, such as weight"),
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
    with pytest.raises(UserError, match="`encoder` applies to encoders, not to embeddings"):
        diagnose(x, encoder="resnet18")
    few = diagnose(np.ones((50, 8)) + 1e-5 * x[:50, :8]).verdict
    assert few.startswith("not healthy: see uniformity")
    assert few.endswith("(uncertain: only 50 rows)")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "hypersphere: missing argument TARGET: hypersphere diagnose TARGET\n"),
        (["resnet81"], "unknown target 'resnet81': did you mean 'resnet18'?"),
        (["resnet18", "-o", "."], "--out . is a folder: name a file in it"),
        (["torchvision/resnet81"], "did you mean 'resnet18'"),
        (["nothere.npy"], "nothere.npy does not exist"),
        (["nothere.pt"], "file not found: nothere.pt"),
        (["."], ". is not a run, a checkpoint"),
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
    with pytest.raises(UserError, match=r"collapsed by epoch .*the run was stopped, its last checkpoint is in"):
        hs.pretrain("byol", data="digits", out=tmp_path / "a", **options)
    assert diagnose(tmp_path / "a", device="cpu").verdict.startswith("not healthy")


def test_keywords_that_are_not_known_are_named():
    for target in (nn.Flatten(), torch.randn(8, 4)):
        with pytest.raises(TypeError, match="unexpected keyword argument 'imgaes'"):
            hs.diagnose(target, imgaes=4)
    with pytest.raises(UserError, match="`data` applies to encoders, not to embeddings"):
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
    assert str(found).splitlines()[0] == "Sequential: 64 given images; features of 2 dimensions"


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
    with pytest.warns(DeprecationWarning, match="is now 'uniformity'"):
        assert wanted.numbers["uniformity (G2)"] == wanted.numbers["uniformity"]
    assert all(name.isidentifier() for name in wanted.numbers)
    assert wanted.numbers["uniformity"] == pytest.approx(hs.uniformity(torch.from_numpy(x)).item(), rel=1e-5)
    assert len(wanted.numbers) == len(wanted.to_json()["findings"])


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({"a": 1}, "diagnose expects embeddings N × D, a run, a network, or a name or path, got dict"),
        (None, "diagnose expects .*, got NoneType"),
        (len, "diagnose expects .*, got builtin_function_or_method"),
        ([[1.0, 2.0], [3.0]], "embeddings must be N × D numbers: got rows of different lengths, or no rows"),
        (torch.ones(3, 4, dtype=torch.complex64), "embeddings holds complex64: expected numbers"),
        (["a", "b"], "embeddings holds <U1: expected numbers"),
    ],
)
def test_what_cannot_be_looked_at_is_told(target, told):
    with pytest.raises(UserError, match=told):
        hs.diagnose(target)
    with pytest.raises(UserError, match=r"`images` must be a whole number of at least 2, got 3.5"):
        hs.diagnose(np.ones((3, 3)), images=3.5)


def test_a_model_of_timm_is_shown_what_it_was_trained_on():
    timm = pytest.importorskip("timm")
    network = timm.create_model("vit_tiny_patch16_224.augreg_in21k", num_classes=0)  # mean and std 0.5
    seen = []
    network.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach()))
    black_and_white = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 224, 224)
    hs.diagnose(network, data=black_and_white)
    assert min(float(view.min()) for view in seen) == -1
    assert max(float(view.max()) for view in seen) == 1


def test_few_rows_are_told():
    *_, rows = hs.diagnose(torch.randn(20, 64)).findings
    assert (rows.name, rows.value, rows.health) == ("rows", 20, "")
    assert all(finding.name != "rows" for finding in hs.diagnose(torch.randn(100, 64)).findings)
