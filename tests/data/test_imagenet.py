"""ImageNet in miniature: four classes, as its owners' archives unpack, and as torchvision reads the same archives."""

import hashlib
import io
import os
import tarfile

import numpy as np
import pytest
import scipy.io
import torchvision

from hypersphere.cli import main
from hypersphere.config import recipe
from hypersphere.data import FILE_SOURCES, SOURCES, Dataset, imagenet, list_data, load_data
from hypersphere.data.file_datasets import save_files
from hypersphere.data.imagenet import list_images
from hypersphere.errors import UserError

IDS = ("n01440764", "n01443537", "n02084071", "n15075141")
NUMBERS = {3: IDS[0], 1: IDS[1], 4: IDS[2], 2: IDS[3]}  # of the development kit: in an order of its own
TRUTH = (2, 3, 3, 1, 4, 2)
VALIDATION = [f"ILSVRC2012_val_{n:08}.JPEG" for n in range(1, 7)]
KINDS = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "O"),
         ("children", "O"), ("wordnet_height", "O"), ("num_train_images", "O")]  # fmt: skip


def table() -> bytes:
    """meta.mat: the classes by their numbers, then what lies above them."""
    rows = [(n, NUMBERS[n], f"word {n}, other", "gloss", 0, np.zeros((1, 0)), 0, 2) for n in sorted(NUMBERS)]
    rows.append((5, "n00001740", "entity", "gloss", 4, np.array([1, 2, 3, 4]), 9, 0))
    synsets = np.empty((len(rows), 1), dtype=KINDS)
    for place, row in enumerate(rows):
        synsets[place, 0] = row
    made = io.BytesIO()
    scipy.io.savemat(made, {"synsets": synsets})
    return made.getvalue()


def files() -> dict[str, bytes]:
    """Path → content, as unpacked."""
    train = {f"train/{name}/{name}_{n}.JPEG": b"x" for name in IDS for n in (10, 9)}
    kit = {
        "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt": "".join(f"{n}\n" for n in TRUTH).encode(),
        "ILSVRC2012_devkit_t12/data/meta.mat": table(),
    }
    return {**train, **{f"val/{name}": b"x" for name in VALIDATION}, **kit}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(imagenet, "CLASSES", len(IDS))
    for name, blob in files().items():
        (tmp_path / "home" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "home" / name).write_bytes(blob)
    return tmp_path / "home"


def in_folders(home) -> None:
    for name, number in zip(VALIDATION, TRUTH, strict=True):
        (home / "val" / NUMBERS[number]).mkdir(exist_ok=True)
        (home / "val" / name).rename(home / "val" / NUMBERS[number] / name)


def labels_by_name(listing) -> dict[str, int]:
    return {path.name: label for path, label in zip(listing.paths, listing.labels.tolist(), strict=True)}


def packed(members: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, blob in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(blob)
            tar.addfile(member, io.BytesIO(blob))
    return made.getvalue()


def test_torchvision_reads_the_same_from_the_archives(home, tmp_path, monkeypatch):
    there, found = tmp_path / "theirs", files()
    there.mkdir()
    classes = {f"{name}.tar": {k.split("/")[-1]: v for k, v in found.items() if f"train/{name}/" in k} for name in IDS}
    made = {
        "train": packed({name: packed(members) for name, members in classes.items()}),
        "val": packed(dict.fromkeys(VALIDATION, b"x")),
        "devkit": packed({name: blob for name, blob in found.items() if "devkit" in name}),
    }
    names = {"train": "ILSVRC2012_img_train.tar", "val": "ILSVRC2012_img_val.tar", "devkit": "devkit.tar"}
    for part, blob in made.items():
        (there / names[part]).write_bytes(blob)
    facts = {part: (names[part], hashlib.md5(blob).hexdigest()) for part, blob in made.items()}
    monkeypatch.setattr(torchvision.datasets.imagenet, "ARCHIVE_META", facts)
    for split, ours in zip(("train", "val"), list_images(home), strict=True):
        theirs = torchvision.datasets.ImageNet(there, split)
        assert labels_by_name(ours) == {os.path.basename(path): label for path, label in theirs.imgs}
        assert ours.classes == tuple(theirs.wnids)


def test_labels_follow_the_sorted_ids(home):
    train, test = list_images(home)
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [path.name for path in train.paths[:2]] == ["n01440764_10.JPEG", "n01440764_9.JPEG"]
    assert [path.name for path in test.paths] == VALIDATION
    assert test.labels.tolist() == [IDS.index(NUMBERS[n]) for n in TRUTH] == [3, 0, 0, 1, 2, 3]
    assert all(path.is_file() for path in (*train.paths, *test.paths))


def test_folders_of_validation_images_need_no_kit(home):
    _, flat = list_images(home)
    in_folders(home)
    (home / "ILSVRC2012_devkit_t12").rename(home / "elsewhere")
    (home / "val" / IDS[0] / "._hidden.JPEG").write_bytes(b"")
    _, test = list_images(home)
    assert labels_by_name(test) == labels_by_name(flat)


def test_it_may_lie_in_a_folder_of_its_name(home, tmp_path):
    home.rename(tmp_path / "imagenet")
    assert len(list_data("imagenet", tmp_path)[0]) == 8


def test_validation_is_a_fixed_part_of_the_training_set(home, monkeypatch):
    assert FILE_SOURCES["imagenet"].validation == 10_009
    source = FILE_SOURCES["imagenet"]
    monkeypatch.setitem(FILE_SOURCES, "imagenet", type(source)(source.find, 3, source.summary))
    train, test = list_data("imagenet", home)
    rest, held_out = list_data("imagenet", home, "validation")
    assert (len(rest), len(held_out), len(test)) == (5, 3, 6)
    assert {*rest.paths, *held_out.paths} == set(train.paths)
    assert labels_by_name(rest) | labels_by_name(held_out) == labels_by_name(train)
    assert held_out.paths == list_data("imagenet", home, "validation")[1].paths


def test_a_run_finds_the_files_again_where_they_have_moved(home, tmp_path):
    began = recipe("byol", "imagenet", holdout="test", root=home)
    save_files(tmp_path / "files.json", *Dataset.resolve(began).split("test"))
    before = Dataset.resolve(began).split("test", tmp_path)
    now = home.rename(tmp_path / "now")
    found = Dataset.resolve(began.replace(root=now)).split("test", tmp_path)
    for files, moved in zip(before, found, strict=True):
        assert [now / path.relative_to(home) for path in files.paths] == list(moved.paths)
        assert files.labels.tolist() == moved.labels.tolist()


def test_what_is_missing_is_told_with_where_to_get_it(home, tmp_path):
    def told(root) -> str:
        with pytest.raises(UserError) as error:
            list_images(root)
        assert "\n" not in str(error.value)
        return str(error.value)

    for message in (told(tmp_path / "nowhere"), told(home / "train")):
        assert "train/n01440764/*.JPEG" in message
        assert "https://image-net.org (needs an account)" in message
    (home / "val" / VALIDATION[2]).unlink()
    assert f"1 of 6 images are missing in {home / 'val'}, such as {VALIDATION[2]}" in told(home)
    truth = home / "ILSVRC2012_devkit_t12" / "data" / "ILSVRC2012_validation_ground_truth.txt"
    truth.write_text("7\n")
    assert "data is damaged (KeyError)" in told(home)
    (truth.parent / "meta.mat").write_bytes(b"no table")
    assert "unpack ILSVRC2012_devkit_t12.tar.gz again" in told(home)
    truth.unlink()
    assert "with ILSVRC2012_devkit_t12/data; download" in told(home)
    for file in (home / "train" / IDS[1]).iterdir():
        file.unlink()
    (home / "val" / IDS[0]).mkdir()
    assert "has no images" in told(home)
    (home / "train" / IDS[1]).rmdir()
    assert "has 3 class folders, not 4" in told(home)


def test_a_class_of_the_kit_that_is_not_in_the_training_set(home):
    (home / "train" / IDS[1]).rename(home / "train" / "n01443538")
    with pytest.raises(UserError, match=r"classes of the validation images are missing in .*train"):
        list_images(home)


def test_files_and_images_in_memory_are_not_mistaken():
    with pytest.raises(UserError, match="imagenet is a dataset of image files: use list_data"):
        load_data("imagenet")
    with pytest.raises(UserError, match="cifar10 is loaded into memory"):
        list_data("cifar10")
    with pytest.raises(
        UserError, match=r"unknown `data` 'imagenat': did you mean 'imagenet'\? .* imagenet, imagenette"
    ):
        list_data("imagenat")
    with pytest.raises(UserError, match="validation or test"):
        list_data("imagenet", holdout="train")  # type: ignore[arg-type]


def test_the_command_lists_and_counts(home, capsys, monkeypatch):
    assert main(["data"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [*SOURCES, *FILE_SOURCES]
    assert [line.split()[0] for line in lines[: len(names)]] == names
    source = FILE_SOURCES["imagenet"]
    monkeypatch.setitem(FILE_SOURCES, "imagenet", type(source)(source.find, 3, source.summary))
    assert main(["data", "imagenet", "--root", str(home)]) == 0
    told = "8 training images (5 + 3 for validation), 6 test images"
    assert capsys.readouterr().out.startswith(f"imagenet in {home}: {told}\n")
    assert main(["data", "digits"]) == 0
    told = "1,437 training images (1,137 + 300 for validation), 360 test images"
    assert capsys.readouterr().out.startswith(f"digits (embedded, nothing to download): {told}\n")
