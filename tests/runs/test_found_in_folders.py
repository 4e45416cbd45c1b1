"""What is found in a folder: splits, classes, and the options that go by it."""

import shutil

import pytest
import torch
from PIL import Image

from hypersphere.data import Dataset, DataSpec, Listing
from hypersphere.data.splits import share_held_out
from hypersphere.errors import UserError
from hypersphere.presets import folder_options
from hypersphere.runs import recipes
from tests.folders import draw


@pytest.mark.parametrize("count", [4, 5, 20, 33])
def test_a_batch_is_no_more_than_is_learnt_from(tmp_path, count):
    for n in range(count):
        draw(tmp_path / "ab"[n % 2] / f"{n}.png", n, (9, 99, 9))
    config = recipes.recipe_for("byol", tmp_path)
    assert config.batch <= len(Dataset.resolve(config).split("validation")[0])


def parts(folder):
    return Dataset.resolve(DataSpec(str(folder))).parts


def test_few_images_have_a_larger_share_held_out():
    assert [share_held_out(images, 50) for images in (2, 9, 70, 250, 400, 1000, 5000)] == [1, 1, 14, 50, 50, 50, 250]


def test_labels_come_before_none(tmp_path):
    """Of a few labelled images among many."""
    paths = tuple(tmp_path / f"{n}.png" for n in range(40))
    for n, path in enumerate(paths):
        draw(path, n, (50, 50, 50))
    labels = torch.full((40,), -1)
    labels[[3, 30]] = torch.tensor([0, 1])
    found = Listing(paths, labels, ("a", "b")).decoded(16, 0, most=5)
    assert sorted(found.labelled.labels.tolist()) == [0, 1]


@pytest.mark.parametrize(
    "names", [("Train", "Val", "TEST"), ("training", "validation", "testing"), ("TRAIN", "valid", "Testing")]
)
def test_a_split_by_other_names(tmp_path, names):
    counts = dict(zip(names, (8, 4, 6), strict=True))
    for name, count in counts.items():
        for n in range(count):
            draw(tmp_path / "in" / name / "ab"[n % 2] / f"{n}.png", n, (99, 9, 9))
    config = recipes.recipe_for("byol", tmp_path / "in")
    for holdout, held_out in (("validation", names[1]), ("test", names[2])):
        for files, name in zip(Dataset.resolve(config).split(holdout), (names[0], held_out), strict=True):
            assert {path.relative_to(tmp_path / "in").parts[0] for path in files.paths} == {name}
            assert (len(files), files.classes) == (counts[name], ("a", "b"))


def test_names_that_are_no_split_or_more_than_one(tmp_path):
    for name in ("train", "training", "bus"):
        draw(tmp_path / name / "a/1.png", 1, (99, 9, 9))
    assert recipes.recipe_for("byol", tmp_path).data == str(tmp_path)  # three classes
    assert parts(tmp_path)["train"].classes == ("bus", "train", "training")
    draw(tmp_path / "test/a/1.png", 1, (99, 9, 9))
    with pytest.raises(UserError, match="train and training could each be the train images: rename all but one"):
        recipes.recipe_for("byol", tmp_path)
    shutil.rmtree(tmp_path / "training")
    for name in "bc":
        draw(tmp_path / f"test/{name}/1.png", 1, (99, 9, 9))
    shutil.rmtree(tmp_path / "test/a")
    with pytest.raises(UserError, match="train and test must have the same class folders"):
        recipes.recipe_for("byol", tmp_path)


def test_a_part_may_lack_a_class(tmp_path, capsys):
    for place, count in {"train/a": 6, "train/rare": 1, "val/a": 2, "val/new": 1, "test/a": 1}.items():
        for n in range(count):
            draw(tmp_path / place / f"{n}.png", n, (99, 9, 9))
    found = parts(tmp_path)
    assert {files.classes for files in found.values()} == {("a", "new", "rare")}
    assert [found[name].labels.tolist() for name in ("train", "val", "test")] == [[0] * 6 + [2], [0, 0, 1], [0]]
    told = capsys.readouterr().err
    assert f"{tmp_path}: val has no images of rare, unlike train" in told
    assert f"{tmp_path}: train has no images of new, unlike val" in told
    draw(tmp_path / "val/1.png", 1, (99, 9, 9))  # in no class
    with pytest.raises(UserError, match="train and val must have the same class folders"):
        parts(tmp_path)


@pytest.mark.parametrize("loose", ["train", "val"])
def test_a_loose_image_beside_classes_is_refused(tmp_path, loose):
    """The labels of its part would be lost."""
    for place in ("train/a", "train/b", "val/a", "val/b", loose):
        draw(tmp_path / place / "1.png", 1, (99, 9, 9))
    with pytest.raises(UserError, match="train and val must have the same class folders"):
        parts(tmp_path)


@pytest.mark.parametrize(("learnt", "held_out"), [("images", "pics"), ("images", ""), ("", "")])
def test_a_split_without_labels(tmp_path, learnt, held_out):
    for n in range(3):
        draw(tmp_path / "train" / learnt / f"{n}.png", n, (99, 9, 9))
        draw(tmp_path / "val" / held_out / f"{n}.png", n, (99, 9, 9))
    assert [(len(files), files.labels) for files in parts(tmp_path).values()] == [(3, None)] * 2


def test_unlabelled_images_beside_those_to_learn_from_alone(tmp_path):
    for place, count in {"train/a": 5, "train/b": 5, "Unlabelled": 4}.items():
        for n in range(count):
            draw(tmp_path / place / f"{n}.png", n, (99, 9, 9))
    learnt, held_out = Dataset.resolve(recipes.recipe_for("byol", tmp_path)).split("validation")
    assert sorted(learnt.labels.tolist()) == [-1] * 4 + [0] * 4 + [1] * 4
    assert (held_out.labels.tolist(), held_out.classes) == ([0, 1], ("a", "b"))


def test_what_lies_beside_a_split(tmp_path, capsys):
    places = {"train/a": 3, "train/b": 3, "val/a": 2, "val/b": 2, "unlabeled/x": 5, "docs": 4, ".cache": 1}
    for place, count in places.items():
        for n in range(count):
            draw(tmp_path / place / f"{n}.png", n, (99, 9, 9))
    learnt, held_out = Dataset.resolve(recipes.recipe_for("byol", tmp_path)).split("validation")
    assert learnt.labels.tolist() == [0] * 3 + [1] * 3 + [-1] * 5
    assert (learnt.classes, len(held_out)) == (("a", "b"), 4)
    told = capsys.readouterr().err
    assert f"{tmp_path}: ignored 4 images in docs: not part of the split\n" in told
    assert "cache" not in told


def test_classes_below_a_folder_of_their_own_are_told(tmp_path, capsys):
    for n in range(12):
        draw(tmp_path / "in/images/all" / f"kind {n % 3}" / f"{n}.png", n, (99, 9, 9))
    files = Dataset.resolve(recipes.recipe_for("byol", tmp_path / "in")).split("validation")[0]
    assert (files.labels, len(files)) == (None, 12)  # as before: runs that have begun go on with the same
    look = f"no labels; the 3 folders in {tmp_path}/in/images/all look like classes: pass that folder to use them"
    assert look in capsys.readouterr().err
    draw(tmp_path / "in/images/all/1.png", 1, (99, 9, 9))
    recipes.recipe_for("byol", tmp_path / "in")
    assert "no labels\n" in capsys.readouterr().err  # some are in none of the three
    recipes.recipe_for("byol", tmp_path / "in/images/all/kind 0")
    assert "no labels\n" in capsys.readouterr().err


def test_names_of_many_classes_are_not_told(tmp_path, capsys):
    for n in range(30):
        draw(tmp_path / f"kind {n}/a.png", n, (99, 9, 9))
    recipes.recipe_for("byol", tmp_path)
    assert "; 30 classes\n" in capsys.readouterr().err


def test_defaults_follow_what_is_there():
    few, photographs = folder_options(500, 56), folder_options(1_200_000, 375)
    assert (few["size"], few["stem"], few["batch"], few["encoder"]) == (64, "cifar", 64, "torchvision/resnet18")
    assert (photographs["size"], photographs["stem"], photographs["batch"]) == (224, "imagenet", 512)
    assert photographs["encoder"] == "torchvision/resnet50"
    assert folder_options(10, 4)["batch"] == 5
    assert [folder_options(500, 300, size)["stem"] for size in (64, 66, 80)] == ["cifar", "imagenet", "imagenet"]
    assert folder_options(500, 300, 80)["size"] == 80


def test_what_goes_by_the_size_goes_by_that_which_was_said(tmp_path):
    for n in range(40):
        draw(tmp_path / "in" / f"{n}.png", n, (9, 9, 9))
    for n in range(40):
        Image.open(tmp_path / "in" / f"{n}.png").resize((120, 110)).save(tmp_path / "in" / f"{n}.png")
    assert (config := recipes.recipe_for("byol", str(tmp_path / "in"))).size == 96
    small = recipes.recipe_for("byol", str(tmp_path / "in"), size=32)
    assert (config.stem, config.lr) == ("imagenet", 0.3)
    assert (small.size, small.stem, small.lr) == (32, "cifar", 1.5)
