import os
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch
import torchvision
from torch import nn

from hypersphere.config import recipe
from hypersphere.data import SOURCES, Images, balanced, load_data
from hypersphere.data.fetch import md5_of
from hypersphere.data.loader import MemoryLoader
from hypersphere.data.stl10 import STL10, File, Part, Stl10, load, unlabelled
from hypersphere.errors import UserError
from hypersphere.evaluate import KnnMonitor, evaluate_encoder
from hypersphere.runs.build import build_method
from hypersphere.runs.machine import training_execution
from hypersphere.runs.monitors import monitors_of
from hypersphere.views import PIPELINES, Views

NAMES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")


@pytest.fixture
def small(tmp_path):
    """An STL-10 of 30 + 10 + 25 images in the official layout, its hashes, and the images as they are."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "source" / "stl10_binary"
    folder.mkdir(parents=True)
    counts = {"train": 30, "test": 10, "unlabeled": 25}
    arrays = {name: rng.integers(0, 256, (n, 3, 96, 96), dtype=np.uint8) for name, n in counts.items()}
    for name, images in arrays.items():
        (folder / f"{name}_X.bin").write_bytes(images.transpose(0, 1, 3, 2).tobytes())  # column by column
        if name != "unlabeled":
            (folder / f"{name}_y.bin").write_bytes(bytes(i % 10 + 1 for i in range(len(images))))
    (folder / "class_names.txt").write_text("\n".join(NAMES) + "\n")

    def hashed(file: File) -> File:
        return File(file.name, md5_of(folder / file.name))

    spec = Stl10(
        replace(STL10.archive, url="http://127.0.0.1:9/stl10_binary.tar.gz"),
        train=Part(hashed(STL10.train.pixels), hashed(STL10.train.labels)),
        test=Part(hashed(STL10.test.pixels), hashed(STL10.test.labels)),
        unlabelled=hashed(STL10.unlabelled),
    )
    return spec, folder.parent, arrays


@pytest.fixture
def source(small, monkeypatch):
    """The data set "stl10" made of the small one, with one validation image a class."""
    spec, root, _ = small
    there = replace(
        SOURCES["stl10"], load=lambda root: load(spec, root), unlabelled=lambda root: unlabelled(spec, root)
    )
    monkeypatch.setitem(SOURCES, "stl10", replace(there, validation_per_class=1))
    return root


def test_the_official_files_are_those_that_torchvision_knows():
    theirs = torchvision.datasets.STL10
    ours = (STL10.train.pixels, STL10.train.labels, STL10.unlabelled, STL10.test.pixels, STL10.test.labels)
    assert [[file.name, file.md5] for file in ours] == theirs.train_list + theirs.test_list
    assert (STL10.archive.url, STL10.archive.md5) == (theirs.url, theirs.tgz_md5)
    assert STL10.archive.folder == theirs.base_folder
    assert SOURCES["stl10"].validation_per_class == 50


def test_images_labels_and_names_are_torchvisions(small, monkeypatch):
    spec, root, arrays = small
    monkeypatch.setattr(torchvision.datasets.STL10, "_check_integrity", lambda self: True)
    for split, images in zip(("train", "test"), load(spec, root), strict=True):
        theirs = torchvision.datasets.STL10(root, split)
        assert np.array_equal(images.pixels.numpy(), theirs.data)
        assert np.array_equal(images.pixels.numpy(), arrays[split])
        assert images.labels.tolist() == theirs.labels.tolist()
        assert images.classes == tuple(theirs.classes)
        assert images.pixels.is_contiguous()
    theirs = torchvision.datasets.STL10(root, "unlabeled")
    assert np.array_equal(unlabelled(spec, root).numpy(), theirs.data)


def test_images_without_labels_are_learnt_from_besides(small, source):
    _, _, arrays = small
    learnt, test = load_data("stl10", "test", source)
    assert learnt.labels.tolist() == [i % 10 for i in range(30)] + [-1] * 25
    assert np.array_equal(learnt.pixels.numpy(), np.concatenate([arrays["train"], arrays["unlabeled"]]))
    assert learnt.pixels.is_contiguous()
    assert test.labels.tolist() == list(range(10))


def test_validation_images_have_labels_and_are_not_learnt_from(small, source):
    _, _, arrays = small
    learnt, held_out = load_data("stl10", "validation", source)
    assert held_out.labels.sort().values.tolist() == list(range(10))
    assert learnt.labelled.labels.bincount().tolist() == [2] * 10
    assert len(learnt) == 45
    seen = {image.numpy().tobytes() for images in (learnt, held_out) for image in images.pixels}
    assert seen == {image.tobytes() for name in ("train", "unlabeled") for image in arrays[name]}


def test_a_split_leaves_images_without_labels_in_the_rest():
    rest, held_out = balanced(torch.tensor([-1, 0, 1, -1, 0, 1, -1]), per_class=1)
    assert len(held_out) == 2
    assert {0, 3, 6} <= set(rest.tolist())


def test_labelled_is_what_has_a_label():
    images = Images(torch.arange(4, dtype=torch.uint8).view(4, 1, 1, 1), torch.tensor([1, -1, 0, -1]), ("a", "b"))
    assert images.labelled.pixels.flatten().tolist() == [0, 2]
    assert images.labelled.labels.tolist() == [1, 0]
    all_known = images.labelled
    assert all_known.labelled is all_known  # nothing is copied


@pytest.fixture(scope="module")
def digits():
    """Learnt from, held out, and the former with copies that have no label."""
    learnt, held_out = load_data("digits")
    return learnt, held_out, learnt.with_unlabelled(learnt.pixels)


def test_probes_look_at_labelled_images_alone(digits):
    learnt, held_out, more = digits
    encoder, recipe = nn.Flatten(), PIPELINES["digits"]
    probes = ("knn", "few-shot", "linear-cached", "linear")

    def shown(*sets):
        return [MemoryLoader(images, Views(recipe, 0)) for images in sets]

    found, wanted = (
        evaluate_encoder(encoder, *shown(some, held_out), probes, neighbours=20, linear_epochs=1)
        for some in (more, learnt)
    )
    assert found == wanted
    assert found["knn"]["top1"] > 90
    measured = (KnnMonitor(1, some, held_out, recipe, 20, 0.1)(encoder) for some in (more, learnt))
    assert next(measured) == next(measured)


def test_held_out_images_without_a_label_are_not_counted_as_wrong(digits):
    learnt, held_out, _ = digits
    half = replace(held_out, labels=held_out.labels.where(torch.arange(len(held_out)) % 2 == 0, -1))
    config = recipe("byol", "digits", hidden=8, projection=4, device="cpu")
    method = build_method(config, channels=1)
    views, probes = Views(PIPELINES["digits"], 0), ("knn", "linear", "semi-10")
    found, wanted = (
        evaluate_encoder(
            method.encoder,
            MemoryLoader(learnt, views),
            MemoryLoader(some, views),
            probes,
            neighbours=20,
            linear_epochs=1,
        )
        for some in (half, held_out[torch.arange(0, len(held_out), 2)])
    )
    assert found == wanted
    *_, monitor = monitors_of(config, method, learnt, half, training_execution(config))
    assert monitor(method.encoder)["knn"] == found["knn"]["top1"] > 50


def test_monitors_of_a_run_on_all_images_split_the_labelled_ones(digits):
    learnt, held_out, more = digits
    config = recipe("byol", "digits", hidden=8, projection=4, holdout="test", device="cpu")
    method = build_method(config, channels=1)
    found, wanted = (monitors_of(config, method, some, held_out, training_execution(config)) for some in (more, learnt))
    assert found[-1](method.encoder) == wanted[-1](method.encoder)
    assert len(found[-1].train) == len(learnt) - 300


def test_files_are_fetched_where_they_are_missing(small, tmp_path):
    spec, root, arrays = small
    home = tmp_path / "home"
    home.mkdir()
    with tarfile.open(home / spec.archive.file, "w:gz", compresslevel=1) as tar:
        tar.add(root / "stl10_binary", "stl10_binary")
    spec = replace(spec, archive=replace(spec.archive, md5=md5_of(home / spec.archive.file)))
    train, _ = load(spec, home)
    assert np.array_equal(train.pixels.numpy(), arrays["train"])
    with pytest.raises(UserError, match=r"stl10 is not in .*unpack http.* so that .*stl10_binary/test_X.bin exists"):
        load(spec, tmp_path / "elsewhere")


def test_damaged_and_missing_files_are_named(small):
    spec, root, _ = small
    file = root / "stl10_binary" / "unlabeled_X.bin"
    blob = bytearray(file.read_bytes())
    blob[-1] ^= 1
    file.write_bytes(blob)
    load(spec, root)
    with pytest.raises(UserError, match=r"unlabeled_X.bin is damaged: remove .*stl10_binary to"):
        unlabelled(spec, root)
    os.truncate(root / "stl10_binary" / "train_X.bin", 29)
    with pytest.raises(UserError, match=r"train_X.bin is damaged"):
        load(spec, root)
    for name in ("train_X.bin", "train_y.bin", "class_names.txt"):
        (root / "stl10_binary" / name).unlink()
        with pytest.raises(UserError, match=f"{name} is missing"):
            load(spec, root)
