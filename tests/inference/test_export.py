"""An encoder that loads anywhere: in plain torchvision or timm, as ONNX, by the steps of its card."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn.utils.parametrize import register_parametrization

import hypersphere as hs
import hypersphere.inference.exporting as exporting
from hypersphere.cli import main
from hypersphere.errors import UserError
from hypersphere.inference.exporting import export
from hypersphere.inference.loading import plain
from hypersphere.nn import build_encoder
from tests.inference.hands import read_card, told
from tests.pictures import draw, untrained

SMALL = {"size": 32, "encoder": "torchvision/resnet18", "stem": "imagenet"}
CASES = {  # a run's options, and the libraries that its encoder loads in
    "imagenet stem": (SMALL, ("torchvision", "timm")),
    "cifar stem": ({**SMALL, "stem": "cifar"}, ("torchvision", "timm")),
    "group norm": ({**SMALL, "norm": "group"}, ("torchvision",)),
    "on the circle, no norm": ({**SMALL, "dimensions": 2, "norm": "none"}, ("torchvision",)),
    "grey": ({"data": "digits", "encoder": "torchvision/resnet18", "stem": "imagenet"}, ("torchvision", "timm")),
    "another of torchvision": ({**SMALL, "encoder": "torchvision/regnet_y_400mf"}, ("torchvision",)),
    "without heads beside": ({**SMALL, "encoder": "torchvision/googlenet"}, ("torchvision",)),
    "another of timm": ({**SMALL, "encoder": "timm/resnet10t"}, ("timm",)),
    "our own": ({"data": "digits"}, ()),
}
BARE = """
import json, os, sys
sys.modules["hypersphere"] = None
import torch
for folder in sys.argv[1:]:
    os.chdir(folder)
    card = json.load(open("card.json"))
    for library, lines in card["load"].items():
        names = {}
        exec("\\n".join(lines), names)
        assert all(name.partition(".")[0] != "hypersphere" or module is None for name, module in sys.modules.items())
        with torch.no_grad():
            torch.save(names["model"](torch.load("inputs.pt")), f"{library}.pt")
"""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    return folder, draw(folder, 12)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("runs") / "digits", "digits")


@pytest.fixture(scope="module")
def resnet(tmp_path_factory, drawn):
    return untrained(tmp_path_factory.mktemp("runs") / "resnet", drawn[0], **SMALL)


with_onnx = pytest.mark.skipif(torch.__version__ < exporting.TORCH_FOR_ONNX, reason="of newer versions of torch")


def test_the_lines_of_the_card_load_it_without_hypersphere(drawn, tmp_path):
    folders = []
    for name, (options, libraries) in CASES.items():
        run = untrained(tmp_path / name, **{"data": drawn[0], **options})
        folder = export(run)
        card = read_card(folder)
        shape = (3, card["input"]["channels"], card["input"]["size"], card["input"]["size"])
        torch.save(torch.randn(shape), folder / "inputs.pt")
        if libraries:
            assert tuple(card["load"]) == libraries, name
            folders.append(folder)
        else:
            assert card["load"] == "no other library has hypersphere/digits: use hypersphere.load(FOLDER)"
            assert card["library"] is None
    subprocess.run([sys.executable, "-c", BARE, *map(str, folders)], check=True, env={**os.environ, "PYTHONPATH": ""})
    for folder in folders:
        inputs, card = torch.load(folder / "inputs.pt"), read_card(folder)
        with torch.no_grad():
            of_run, of_card = (hs.load(path, "cpu").encoder(inputs) for path in (folder.parent, folder))
        torch.testing.assert_close(of_card, of_run, rtol=0, atol=1e-5)
        assert of_run.shape == (3, card["features"])
        for library in card["load"]:
            torch.testing.assert_close(torch.load(folder / f"{library}.pt"), of_run, rtol=0, atol=1e-5, msg=folder.name)


def test_the_card_says_what_is_needed(resnet, tmp_path, capsys):
    run = shutil.copytree(resnet, tmp_path / "run")
    config = hs.load_run(run).config
    record = {"hash": config.hash, "step": 1, "validation": {"knn": {"top1": 50.0}}}
    (run / "evaluation.json").write_text(json.dumps(record))
    assert main(["export", str(run)]) == 0
    written, suggested = capsys.readouterr().out.splitlines()
    assert written == f"written to {run}/export: card.json, encoder.safetensors"
    assert suggested == f"next: hypersphere embed {run}/export FOLDER_OF_IMAGES -o embeddings.npz"
    (run / "export/notes.txt").touch()
    assert main(["export", str(run)]) == 0
    assert "notes.txt" not in capsys.readouterr().out
    card = read_card(run / "export")
    blob = (run / "export/encoder.safetensors").read_bytes()
    assert card["weights"] == {"file": "encoder.safetensors", "sha256": hashlib.sha256(blob).hexdigest()}
    assert card["metrics"] == {"validation": {"knn": {"top1": 50.0}}}
    assert (card["encoder"], card["library"], card["features"]) == ("torchvision/resnet18", "torchvision", 512)
    assert card["architecture"]["stem"] == "imagenet"
    assert [card["input"][name] for name in ("size", "resize", "crop")] == [32, 37, 32]
    assert [step[:30] for step in card["input"]["steps"]] == [
        "decode; a JPEG whose shorter s",
        "convert images of more than 8 ",
        "take the centre square (from (",
        "crop the centre 32 × 32 pixels",
        "divide by 255, subtract `mean`",
    ]
    assert (card["run"]["hash"], card["run"]["config"]["size"]) == (config.hash, 32)
    assert card["versions"]["torch"] == torch.__version__
    (run / "evaluation.json").write_text(json.dumps({**record, "step": 0}))  # of an encoder that was
    assert main(["export", str(run)]) == 0
    assert read_card(run / "export")["metrics"] == {}
    assert not capsys.readouterr().err  # there are no labels to evaluate it by


def test_a_run_that_could_be_evaluated_is_told(digits, tmp_path, capsys):
    run = shutil.copytree(digits, tmp_path / "the run")
    assert main(["export", str(run)]) == 0
    told = f"the card has no metrics, since step 1 has not been evaluated: hypersphere evaluate '{run}'\n"
    assert capsys.readouterr().err.endswith(told)


def test_the_steps_of_the_card_are_what_is_done(resnet, tmp_path):
    """Followed by PIL and numpy alone, for a photograph four times as large as is needed, its margins odd."""
    noise = np.random.default_rng(0).integers(0, 256, (12, 15, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((201, 160), Image.Resampling.BICUBIC).save(tmp_path / "photo.jpg", quality=95)
    picture = Image.open(tmp_path / "photo.jpg")
    picture.draft("RGB", (201 // 4, 160 // 4))
    picture = picture.convert("RGB")
    assert picture.size == (51, 40)  # a quarter
    box = (5.5, 0, 45.5, 40)
    square = np.asarray(picture.resize((37, 37), Image.Resampling.BICUBIC, box=box)).astype(np.float32)[2:34, 2:34]
    found = hs.load(resnet).preprocess
    wanted = (square / 255 - np.float32(found.mean)) / np.float32(found.std)
    np.testing.assert_allclose(found(tmp_path / "photo.jpg").permute(1, 2, 0), wanted, atol=1e-5)


@pytest.mark.parametrize("white", [None, 4095, 999])
def test_the_steps_of_the_card_are_what_is_done_to_files_of_any_depth(drawn, tmp_path, white):
    """Each number as the card says it, by PIL and numpy alone."""
    run = untrained(tmp_path / "run", drawn[0], size=32, encoder="hypersphere/digits", white=white)
    exported = export(run, tmp_path / "exported")
    card = read_card(exported)["input"]
    (step,) = (step for step in card["steps"] if step.startswith("convert images of more than 8 bits"))
    most, by, of = map(int, re.search(r"clip to 0 … (\d+), multiply by (\d+) / (\d+), round down", step).groups())
    values = np.random.default_rng(0).integers(0, 5000 if white else 65536, (50, 45))
    for name, stored in (
        ("bytes.png", values.astype(np.uint8)),
        ("deep.png", values.astype(np.uint16)),
        ("deep.tif", values.astype(np.uint16)),
        ("wide.tif", (values - 40).astype(np.int32)),
    ):
        file = tmp_path / name
        Image.fromarray(stored).save(file)
        picture = Image.open(file)
        assert np.array_equal(np.asarray(picture), stored)
        if picture.mode.startswith("I"):
            limited = np.minimum(np.maximum(stored.astype(float), 0), most)
            picture = Image.fromarray(np.floor(limited * by / of).astype(np.uint8))
        square = picture.convert("RGB").resize((37, 37), Image.Resampling.BICUBIC, box=(0, 2.5, 45, 47.5))
        middle = np.asarray(square).astype(np.float64)[2:34, 2:34]
        wanted = (middle / 255 - np.array(card["mean"])) / np.array(card["std"])
        for source in (run, exported):
            found = hs.load(source, "cpu").preprocess
            np.testing.assert_allclose(found(file).permute(1, 2, 0), wanted, atol=1e-5)
            assert torch.equal(found(file), found(Image.open(file)))


def test_a_run_itself_is_exported_and_only_to_what_there_is(digits, tmp_path):
    folder = export(hs.load_run(digits), tmp_path / "out")
    assert (folder / "encoder.safetensors").is_file()
    with pytest.raises(UserError, match="`format` must be one of safetensors, onnx, timm, hub, got 'tf'"):
        export(digits, tmp_path / "other", format="tf")
    assert not (tmp_path / "other").exists()


@with_onnx
def test_onnx_gives_what_torch_gives_for_batches_of_any_size(resnet, tmp_path):
    folder = export(resnet, tmp_path, "onnx")
    card, loaded = read_card(folder), hs.load(folder, "cpu")
    assert sorted(os.listdir(tmp_path)) == ["card.json", "encoder.onnx", "encoder.safetensors"]
    assert card["onnx"]["sha256"] == hashlib.sha256((folder / "encoder.onnx").read_bytes()).hexdigest()
    session = onnxruntime.InferenceSession(folder / "encoder.onnx", providers=["CPUExecutionProvider"])
    for batch in (1, 5, 8):
        images = torch.randn(batch, 3, 32, 32)
        (found,) = session.run([card["onnx"]["output"]], {card["onnx"]["input"]: images.numpy()})
        with torch.no_grad():
            np.testing.assert_allclose(found, loaded.encoder(images), atol=1e-4)
    with pytest.raises(
        UserError, match=r"encoder.onnx has older weights: overwrite it with `format` onnx, or choose another `out`"
    ):
        export(resnet, tmp_path)


@with_onnx
def test_onnx_that_differs_is_not_put_in_place(digits, tmp_path, monkeypatch):
    def of_another(encoder, images, file, output, whole=exporting._convert):
        whole(build_encoder("hypersphere/digits", channels=1).eval(), images, file, output)

    monkeypatch.setattr(exporting, "_convert", of_another)
    with pytest.raises(UserError, match=r"ONNX was not written: it differs from torch by .* in a batch of 1"):
        export(digits, tmp_path / "exported", "onnx")
    assert os.listdir(tmp_path / "exported") == []


@with_onnx
def test_onnx_of_a_fixed_batch_is_told(digits, tmp_path, monkeypatch):
    def fixed(encoder, images, file, output, whole=exporting._convert):
        monkeypatch.setattr(torch.export, "Dim", lambda name: None)
        whole(encoder, images, file, output)

    monkeypatch.setattr(exporting, "_convert", fixed)
    with pytest.raises(
        UserError, match=r"^the ONNX file fails for a batch of 1 \(.*\): use x\.shape\[0\] instead of len\(x\)"
    ):
        export(digits, tmp_path / "exported", "onnx")
    assert os.listdir(tmp_path / "exported") == []


@with_onnx
def test_an_encoder_that_onnx_cannot_say_is_told_in_a_line(digits, tmp_path, monkeypatch):
    def failing(*args, **options):
        raise torch.onnx.OnnxExporterError("Next steps:\n- many") from ValueError("no such operator\nand more")

    monkeypatch.setattr(torch.onnx, "export", failing)
    with pytest.raises(
        UserError, match=r"^torch \S+ and onnxscript \S+ cannot export .* to ONNX: .* \(no such operator\)$"
    ):
        export(digits, tmp_path / "exported", "onnx")
    assert os.listdir(tmp_path / "exported") == []


def test_torch_too_old_for_onnx_is_told(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "TORCH_FOR_ONNX", "99.0")
    with pytest.raises(UserError, match=r"`format` onnx needs torch 99\.0 or newer, found \d"):
        export(digits, tmp_path, "onnx")


def test_mistakes_of_export_are_told_in_a_line(digits, tmp_path, capsys):
    exported = export(digits, tmp_path / "exported")
    capsys.readouterr()
    (tmp_path / "file").touch()
    bare = shutil.copytree(digits, tmp_path / "bare")
    (bare / "checkpoint.pt").unlink()
    for words, message in [
        ((), "hypersphere export RUN"),
        ((tmp_path,), "is not a run: it has no run.json"),
        ((exported,), "exported is exported already: pass --format onnx, or another --out"),
        ((bare,), "there is no checkpoint"),
        ((digits, "--out", tmp_path / "file"), "cannot make the folder .*file: File exists"),
        ((digits, "--out", tmp_path / "file/below"), "cannot make the folder .*below"),
        ((digits, "--out", digits), "is a run: choose another folder"),
        ((digits, "--format", "pickle"), "pickle"),
    ]:
        assert re.search(message, told(capsys, "export", *words))


class Twice(nn.Module):
    def forward(self, x):
        return 2 * x


def test_every_parametrization_is_carried_out():
    """Not that of a weight alone: the card's lines do so, too."""
    encoder = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    for module, name in ((encoder[0], "weight"), (encoder[0], "bias"), (encoder[1], "bias")):
        register_parametrization(module, name, Twice())
    x = torch.randn(2, 3)
    assert plain(encoder).state_dict().keys() == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert torch.equal(plain(encoder)(x), encoder(x))
