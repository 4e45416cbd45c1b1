"""Folders for the Hugging Face Hub: timm and huggingface_hub load them, and the README runs. No network is needed."""

import json
import math
import os
import re
import shutil
import subprocess
import sys

import pytest
import torch
from PIL import Image

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.config import recipe
from hypersphere.errors import UserError
from hypersphere.inference.exporting import export
from hypersphere.inference.hub_folder import _share, timm_config
from hypersphere.nn import build_encoder
from hypersphere.runs.initial_weights import load_initial_weights
from tests.inference.hands import read_card, told
from tests.pictures import untrained

timm = pytest.importorskip("timm")
SMALL = {"size": 32, "encoder": "torchvision/resnet18", "stem": "imagenet"}
LOADED_BY_TIMM = {
    "resnet": SMALL,
    "with an output layer": {**SMALL, "dimensions": 2},
    "of timm": {**SMALL, "encoder": "timm/resnet10t"},
    "vit": {**SMALL, "encoder": "timm/test_vit", "size": 160},
    "grey": {"data": "digits", "encoder": "torchvision/resnet18", "stem": "imagenet"},
}


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def features_of(folder, images):
    with torch.no_grad():
        return hs.load(folder, "cpu").encoder(images)


@pytest.mark.parametrize("name", LOADED_BY_TIMM)
def test_timm_loads_the_folder_as_it_is(name, drawn, tmp_path):
    options = LOADED_BY_TIMM[name]
    run = untrained(tmp_path / "run", **{"data": drawn[0], **options})
    folder = export(run, format="timm")
    assert folder == run / "hub"
    model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    size = read_card(folder)["input"]["size"]
    images = torch.randn(2, read_card(folder)["input"]["channels"], size, size)
    with torch.no_grad():
        torch.testing.assert_close(model(images), features_of(run, images), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(features_of(folder, images), features_of(run, images), rtol=1e-5, atol=1e-5)
    tuned = timm.create_model(f"local-dir:{folder}", pretrained=True, num_classes=7)
    assert tuned(images).shape == (2, 7)
    torch.testing.assert_close(next(tuned.parameters()), next(model.parameters()))


def test_timm_prepares_images_almost_as_evaluation_does(drawn, tmp_path):
    run = untrained(tmp_path / "run", drawn[0], **SMALL)
    folder = export(run, format="timm")
    model = timm.create_model(f"local-dir:{folder}", pretrained=True)
    settings = timm.data.resolve_model_data_config(model)
    preprocess = hs.load(folder, "cpu").preprocess
    assert [*settings["input_size"]] == [3, 32, 32]
    assert settings["mean"] == pytest.approx(preprocess.mean)
    assert settings["std"] == pytest.approx(preprocess.std)
    transform = timm.data.create_transform(**settings, is_training=False)
    sides = [step.size for step in transform.transforms if hasattr(step, "size")]
    assert [sides[0], *sides[1]] == [37, 32, 32]  # resized, then cropped
    photo = Image.linear_gradient("L").resize((100, 80)).convert("RGB")
    torch.testing.assert_close(transform(photo), preprocess(photo), atol=0.1, rtol=0)


@pytest.mark.parametrize(("size", "side"), [(32, 37), (224, 256), (96, 110), (160, 183), (64, 64), (128, 147)])
def test_timm_resizes_to_the_same_side(size, side):
    share = _share({"size": size, "side": side, "resize": None, "crop": size})
    assert math.floor(size / share) == side
    assert share == pytest.approx(size / side)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"stem": "cifar"}, "timm has no resnet18 with the stem for small images (`stem` cifar)"),
        ({"norm": "group"}, "timm has no resnet18 with `norm` group"),
        ({"encoder": "torchvision/regnet_y_400mf"}, "timm has no torchvision/regnet_y_400mf"),
    ],
)
def test_what_timm_does_not_have(options, reason):
    config = recipe("simclr", "digits", **{"encoder": "torchvision/resnet18", "stem": "imagenet", **options})
    with pytest.raises(UserError, match=f"^{re.escape(reason)}: use `format` hub$"):
        timm_config(config, torch.nn.Identity(), {"channels": 1})


def test_a_folder_that_timm_does_not_load(digits, tmp_path, capsys):
    assert main(["export", str(digits), "--format", "hub", "--out", str(tmp_path / "hub")]) == 0
    assert "timm will not load this folder: timm has no hypersphere/digits" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path / "hub")) == ["README.md", "card.json", "config.json", "model.safetensors"]
    assert "timm" not in (tmp_path / "hub/README.md").read_text()
    assert hs.load(tmp_path / "hub", "cpu").features == 128
    assert main(["export", str(digits), "--format", "timm"]) == 2
    assert capsys.readouterr().err.endswith("timm has no hypersphere/digits: use --format hub\n")


def test_weights_of_another_network_are_refused():
    """timm's resnet18 has none of these weights."""
    config = recipe("simclr", "digits", encoder="torchvision/resnet18", stem="imagenet")
    with pytest.raises(UserError, match=r"^timm's resnet18 does not have these weights \(.*\): use `format` hub$"):
        timm_config(config, torch.nn.Linear(2, 2), {"channels": 1, "size": 8})


@pytest.fixture(scope="module")
def hub(drawn, tmp_path_factory):
    run = untrained(tmp_path_factory.mktemp("runs") / "resnet", drawn[0], **SMALL)
    config = hs.load_run(run).config
    knn = {"top1": 50.0, "top5": 91.234, "k": 20, "temperature": 0.1}
    sphere = {"images": 300, "uniformity": -2.345, "effective_rank": 14.6}
    record = {"hash": config.hash, "step": 1, "validation": {"knn": knn, "1-shot": {"top1": 46.0}, "sphere": sphere}}
    (run / "evaluation.json").write_text(json.dumps(record))
    return export(run, format="hub")


def test_the_readme_is_a_model_card(hub, drawn):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    card = huggingface_hub.ModelCard.load(hub / "README.md")
    assert card.data.library_name == "timm"
    assert card.data.pipeline_tag == "image-feature-extraction"
    found = {(r.metric_name, r.dataset_split): r.metric_value for r in card.data.eval_results}
    assert found == {("k-NN, k = 20", "validation"): 50.0, ("1-shot", "validation"): 46.0}
    text = card.text
    assert "| k-NN, k = 20 | validation | 50.00 % | 91.23 % |" in text
    assert "uniformity -2.35, effective rank 14.60" in text or "uniformity -2.34, effective rank 14.60" in text
    for file in hub.iterdir():
        folder = str(drawn[0].parent)
        assert folder.encode() not in file.read_bytes(), f"{file.name} has the path of the images"


def test_the_code_of_the_readme_runs(hub, drawn, tmp_path):
    pytest.importorskip("huggingface_hub")
    folder = shutil.copytree(hub, tmp_path / "hub")
    shutil.copy(drawn[1][0], folder / "photo.jpg")
    blocks = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    code = "\n".join([*blocks, "assert features.shape == (1, 512), features.shape", "assert model is not None"])
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=folder, env=environment)


def test_the_name_of_the_repository_is_in_the_readme(hub, capsys):
    assert main(["export", str(hub.parent), "--format", "hub", "--repository", "me/photos"]) == 0
    text = (hub / "README.md").read_text()
    assert '"hf-hub:me/photos"' in text
    assert 'from_pretrained("me/photos")' in text
    assert "# photos" in text
    out = capsys.readouterr().out
    assert f"written to {hub}: README.md, card.json, config.json, model.safetensors" in out
    assert f"hf upload me/photos {hub}" in out
    assert main(["export", str(hub.parent), "--format", "hub"]) == 0


def test_formats_do_not_share_a_folder(hub, capsys):
    message = "model.safetensors is an export in another `?(--)?format`?: choose another `?(--)?out`?, or remove it"
    assert re.search(message, told(capsys, "export", hub.parent, "--out", hub))


def test_a_run_can_start_from_such_a_folder(hub, drawn):
    config = recipe("simclr", str(drawn[0]), **SMALL, init=str(hub))
    encoder = build_encoder("torchvision/resnet18")
    load_initial_weights(encoder, config, 3)
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(encoder.eval()(images), features_of(hub, images))
