import os
import shutil
import tarfile
from dataclasses import replace

import pytest
import torchvision

from hypersphere.data import list_data
from hypersphere.data.fetch import md5_of
from hypersphere.data.imagenette import CLASSES, FULL, SIDE_160, SIDE_320, list_images
from hypersphere.errors import UserError


@pytest.fixture
def root(tmp_path):
    """Two training images and one of validation of each class, and the list of wrong labels that comes with them."""
    for name in CLASSES:
        for part, count in (("train", 2), ("val", 1)):
            folder = tmp_path / "imagenette2-320" / part / name
            folder.mkdir(parents=True)
            for n in range(count):
                (folder / f"{part}_{name}_{n}.JPEG").write_bytes(b"x")
    (tmp_path / "imagenette2-320" / "noisy_imagenette.csv").write_text("path,noisy_labels_0\n")
    return tmp_path


def test_the_archives_are_those_that_torchvision_knows():
    for size, ours in (("full", FULL), ("320px", SIDE_320), ("160px", SIDE_160)):
        assert (ours.url, ours.md5) == torchvision.datasets.Imagenette._ARCHIVES[size]
    assert [archive.folder for archive in (FULL, SIDE_320, SIDE_160)] == [
        "imagenette2",
        "imagenette2-320",
        "imagenette2-160",
    ]


def test_files_labels_and_names_are_torchvisions(root):
    for split, ours in zip(("train", "val"), list_data("imagenette", root), strict=True):
        theirs = torchvision.datasets.Imagenette(root, split, size="320px")
        assert [
            (str(path), label) for path, label in zip(ours.paths, ours.labels.tolist(), strict=True)
        ] == theirs._samples
        assert ours.classes == tuple(names[0] for names in theirs.classes)
        assert len(ours) == {"train": 20, "val": 10}[split]


def test_it_is_fetched_where_it_is_missing(root, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    with tarfile.open(home / SIDE_320.file, "w:gz") as tar:
        tar.add(root / "imagenette2-320", "imagenette2-320")
    archive = replace(SIDE_320, md5=md5_of(home / SIDE_320.file), url=f"http://127.0.0.1:9/{SIDE_320.file}")
    train, test = list_images(archive, home)
    assert (len(train), len(test)) == (20, 10)
    with pytest.raises(UserError, match=r"imagenette is not in .*could not be downloaded .*imagenette2-320/val exists"):
        list_images(archive, tmp_path / "elsewhere")
    assert os.listdir(tmp_path / "elsewhere") == [f".{SIDE_320.file}.lock"]


def test_a_class_without_images_is_named(root):
    shutil.rmtree(root / "imagenette2-320" / "train" / "n03445777")
    with pytest.raises(UserError, match=r"train/n03445777 has no images"):
        list_data("imagenette", root)
