"""Encoders by any name, of runs and of exports: the features of pictures in any form, and what is refused."""

import json
import os
import pickle
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import hypersphere as hs
from hypersphere.data import load_data
from hypersphere.data.folder import Listing
from hypersphere.data.loader import center_view
from hypersphere.errors import UserError
from hypersphere.evaluate import extract
from hypersphere.inference.exporting import export
from hypersphere.views import folder_pipeline
from tests.inference.hands import read_card
from tests.pictures import untrained


@pytest.fixture
def exported(digits, tmp_path):
    return export(digits, tmp_path / "exported")


def test_every_way_to_name_an_encoder_gives_the_same(digits, exported):
    inputs = torch.randn(2, 1, 8, 8)
    wanted = hs.load_run(digits, "cpu").encoder(inputs)
    for path in (digits, str(digits), exported, exported / "card.json"):
        loaded = hs.load(path, "cpu")
        assert torch.equal(loaded.encoder(inputs), wanted)
        assert loaded.fingerprint == read_card(exported)["weights"]["sha256"]


def test_load_is_a_function_whatever_was_imported_before():
    import hypersphere.inference.loading

    assert hs.load is hypersphere.inference.loading.load


def test_preprocessing_is_that_of_evaluation(run, digits, drawn):
    _, paths = drawn
    loaded = hs.load(run, device="cpu")
    assert not loaded.encoder.training
    wanted = center_view(folder_pipeline(32))(Listing(tuple(paths)).decoded(37, 0, 99).pixels)
    for path, view in zip(paths, wanted, strict=True):
        image = Image.open(path)
        array = np.asarray(image).transpose(2, 0, 1)
        for picture in (path, str(path), image, array, torch.tensor(array)):
            assert torch.equal(loaded.preprocess(picture), view)
    assert torch.equal(
        loaded.encode([*paths[:3], Image.open(paths[3])]), extract(loaded.encoder, wanted[:4], lambda x: x)
    )
    assert loaded.encode([]).shape == (0, 512)
    assert torch.equal(loaded.encode(path for path in paths[:3]), loaded.encode(paths[:3]))
    pixels, own = load_data("digits")[0].pixels[:5], hs.load_run(digits, "cpu")
    assert torch.equal(hs.load(digits, "cpu").encode(pixels), own.encode(pixels))


def test_images_of_data_sets_in_memory_pass_unchanged(tmp_path):
    """CIFAR's and STL-10's are seen by evaluation at their own size."""
    for data, side in (("cifar10", 32), ("stl10", 96)):
        run = untrained(tmp_path / data, data, stem="imagenet", size=None)
        loaded = hs.load(run, "cpu")
        pixels = torch.randint(0, 256, (2, 3, side, side), dtype=torch.uint8)
        torch.testing.assert_close(loaded.encode(pixels), hs.load_run(run, "cpu").encode(pixels))


def test_a_run_and_what_loads_it_encode_in_one_way(run, drawn):
    """Also images of another size and of other channels, which are resized as files are."""
    own, loaded = hs.load_run(run, "cpu"), hs.load(run, "cpu")
    pixels = torch.randint(0, 256, (3, 3, 50, 61), dtype=torch.uint8)
    squares = torch.randint(0, 256, (3, 1, 37, 37), dtype=torch.uint8)
    for images in (pixels, pixels.numpy(), squares, drawn[1][:3]):
        torch.testing.assert_close(own.encode(images), loaded.encode(list(images)), rtol=1e-5, atol=1e-5)
    alone = torch.stack([loaded.preprocess(image) for image in pixels])
    with torch.no_grad():
        torch.testing.assert_close(own.encode(pixels), own.encoder(alone))


def test_features_of_a_stage(run, drawn):
    own, loaded = hs.load_run(run, "cpu"), hs.load(run, "cpu")
    maps = loaded.encode(drawn[1][:3], level=3)
    assert maps.shape == (3, 256, 2, 2)
    assert torch.equal(own.encode(drawn[1][:3], level=3), maps)
    torch.testing.assert_close(loaded.encode(drawn[1][:3], level=3, pooled=True), maps.mean((2, 3)))
    assert loaded.encode([], level=3).shape == (0, 256, 2, 2)
    torch.testing.assert_close(loaded.encode(drawn[1][:3], level=4, pooled=True), loaded.encode(drawn[1][:3]))
    with pytest.raises(UserError, match="`level` 'patches' does not exist in ResNet"):
        loaded.encode(drawn[1], level="patches")


def test_a_file_and_its_bytes_are_the_same_picture(digits, drawn):
    file = min(drawn[0].rglob("*.*"))
    loaded = hs.load(digits)
    torch.testing.assert_close(loaded.encode([file.read_bytes()]), loaded.encode([file]), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        ("gone.png", "gone.png does not exist"),
        (__file__, r"test_loading.py cannot be read \(not an image\)"),
        (
            np.zeros((5, 8, 8)),
            r"an image of float64 and shape \(5, 8, 8\) cannot be read \(it has 5 channels, not 1 or 3\)",
        ),
        (np.full((3, 8, 8), 2.5), "its pixels are floats up to 2.5: scale them"),
        (np.full((3, 8, 8), np.nan), "some of its pixels are NaN or infinite"),
        (np.zeros((3, 0, 0), np.uint8), r"an image of uint8 and shape \(3, 0, 0\) cannot be read"),
        (Image.new("F", (8, 8)), "pixels are floats of unknown range"),
        (b"no picture", r"an image given as bytes cannot be read \(not an image\)"),
        (7, "a path, a PIL image, the bytes of an image file, or an array or tensor .*, got int"),
    ],
)
def test_what_is_no_picture_is_told(digits, picture, message):
    with pytest.raises(UserError, match=message):
        hs.load(digits).encode([picture])


def test_images_are_taken_as_those_to_train_on(digits):
    bytes_ = np.random.default_rng(0).integers(0, 256, (6, 3, 20, 14), dtype=np.uint8)
    loaded = hs.load(digits)
    wanted = loaded.encode(list(bytes_))
    last = bytes_.transpose(0, 2, 3, 1)
    for images in (bytes_, last, bytes_.astype(np.int64), bytes_.astype(np.uint16) * 257, torch.from_numpy(last / 255)):
        torch.testing.assert_close(loaded.encode(images), wanted, rtol=0, atol=1e-5)
        torch.testing.assert_close(loaded.encode(list(images)), wanted, rtol=0, atol=1e-5)
    grey = bytes_[:, 0]
    torch.testing.assert_close(loaded.encode(grey), loaded.encode(list(grey[:, None])))
    with pytest.raises(UserError, match=r"array of shape \(3, 20, 14\), which may be one image or grey ones: pass"):
        loaded.encode(bytes_[0])


def test_one_picture_is_a_list_of_one(digits):
    for picture in ("a.png", b"abc", Image.new("RGB", (8, 8))):
        with pytest.raises(UserError, match=r"needs a list of images, got a single one: pass \[image\]"):
            hs.load(digits).encode(picture)


class Boom:
    def __reduce__(self):
        return os.mkdir, ("boom",)


def test_nothing_is_unpickled(digits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = shutil.copytree(digits, tmp_path / "run")
    for save in (torch.save, lambda state, file: file.write_bytes(pickle.dumps(state))):
        save({"method": Boom()}, run / "checkpoint.pt")
        with pytest.raises(
            UserError, match=r"holds more than a run saves, which could run code when loaded|not a zip file"
        ):
            hs.load(run)
    assert not (tmp_path / "boom").exists()


def damaged(folder, **changes):
    (folder / "card.json").write_text(json.dumps({**read_card(folder), **changes}))


def test_a_card_that_says_nothing_of_white_is_read_card(exported):
    card = read_card(exported)
    del card["input"]["white"]
    damaged(exported, input=card["input"])
    assert hs.load(exported).preprocess.white is None


def test_damaged_exports_are_told(exported):
    card, weights = (exported / "card.json").read_text(), (exported / "encoder.safetensors").read_bytes()
    (exported / "encoder.safetensors").write_bytes(weights[:-4] + b"abcd")
    with pytest.raises(UserError, match=r"is not the file that card.json describes"):
        hs.load(exported)
    (exported / "encoder.safetensors").unlink()
    with pytest.raises(UserError, match=r"encoder.safetensors does not exist, but card.json describes it"):
        hs.load(exported)
    (exported / "encoder.safetensors").write_bytes(weights)
    for changes, message in [
        ({"input": {}}, r"card.json is damaged \(input.side is missing\)"),
        ({"architecture": {"depth": 3}}, r"card.json is damaged \(architecture.channels is missing\)"),
        ({"architecture": {"channels": 1, "depth": 3}}, r"card.json is damaged \(.*unexpected keyword argument"),
        (
            {"input": {**read_card(exported)["input"], "std": [0.0]}},
            r"card.json is damaged \(mean and std must be finite, and std above 0",
        ),
        ({"architecture": {"channels": 3}}, r"encoder.safetensors does not fit hypersphere/digits \(size mismatch"),
        ({"encoder": "hypersphere/none"}, "unknown encoder"),
        ({"kind": "of a deck"}, "is not the card of an exported encoder"),
    ]:
        damaged(exported, **changes)
        with pytest.raises(UserError, match=message):
            hs.load(exported)
        (exported / "card.json").write_text(card)
    (exported / "card.json").write_text("{")
    with pytest.raises(UserError, match=r"card.json is damaged \(Expecting property name"):
        hs.load(exported / "card.json")
