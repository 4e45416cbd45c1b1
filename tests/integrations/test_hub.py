"""`from_pretrained` and `save_pretrained` of huggingface_hub, without a network."""

import json
from pathlib import Path

import pytest
import torch

import hypersphere as hs
from hypersphere.errors import UserError
from hypersphere.inference.exporting import export
from tests.pictures import draw, untrained

pytest.importorskip("huggingface_hub")
from hypersphere.integrations import hub


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    run = untrained(tmp_path_factory.mktemp("runs") / "digits", "digits")
    return export(run, format="hub")


def test_from_pretrained_is_hs_load(folder, tmp_path):
    (picture, *_) = draw(tmp_path, 1)
    encoder = hub.Encoder.from_pretrained(folder)
    wanted = hs.load(folder, "cpu").encode([picture])
    assert torch.equal(encoder.encode([picture]), wanted)
    images = torch.stack([encoder.preprocess(picture)])
    torch.testing.assert_close(encoder(images), wanted)
    assert encoder(images).requires_grad
    assert encoder.features == 128


def test_what_was_tuned_is_saved_and_loads(folder, tmp_path):
    encoder = hub.Encoder.from_pretrained(folder)
    encoder.save_pretrained(tmp_path / "same")
    assert (tmp_path / "same/README.md").read_text() == (folder / "README.md").read_text()
    with torch.no_grad():
        next(encoder.parameters()).add_(1)
    encoder.save_pretrained(tmp_path / "tuned")
    again = hub.Encoder.from_pretrained(tmp_path / "tuned")
    images = torch.randn(2, 1, 8, 8)
    encoder.eval()
    torch.testing.assert_close(again(images), encoder(images))
    torch.testing.assert_close(hs.load(tmp_path / "tuned", "cpu").encoder(images), encoder(images))
    assert json.loads((tmp_path / "tuned/card.json").read_text())["metrics"] == {}
    assert "90" not in (tmp_path / "tuned/README.md").read_text()  # no results of other weights


def test_a_name_is_looked_for_on_the_hub(folder, tmp_path, monkeypatch):
    asked = {}

    def downloaded(name, **options):
        asked.update(options, name=name)
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", downloaded)
    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", lambda **options: str(folder / "card.json"))
    encoder = hub.Encoder.from_pretrained("me/photos", revision="v2", cache_dir=tmp_path)
    assert encoder.features == 128
    assert (asked["name"], asked["revision"], asked["cache_dir"]) == ("me/photos", "v2", tmp_path)


def test_a_run_is_exported_first(folder, tmp_path):
    encoder = hub.Encoder(folder.parent)
    with pytest.raises(UserError, match="is a run: load the folder that hypersphere export --format hub writes"):
        encoder.save_pretrained(tmp_path)


def test_code_of_strangers_is_not_run(folder, tmp_path):
    card = json.loads((folder / "card.json").read_text())
    card["encoder"] = "antigravity:fly"
    (tmp_path / "card.json").write_text(json.dumps(card))
    (tmp_path / "model.safetensors").write_bytes(Path(folder / "model.safetensors").read_bytes())
    with pytest.raises(UserError, match="trust"):
        hub.Encoder.from_pretrained(tmp_path)
