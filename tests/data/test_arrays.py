"""Images as arrays, of files and of functions: read as they lie there, split, learnt from."""

import sys

import numpy as np
import pytest
import torch
from PIL import Image

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.data import Dataset, DataSpec, Split, load_data
from hypersphere.data.file_datasets import FolderDataset
from hypersphere.data.object_datasets import ObjectDataset, remember_object
from hypersphere.errors import UserError
from tests.networks import SMALL_ENCODER, those_of

GREY = np.random.default_rng(0).integers(0, 256, (60, 9, 7), dtype=np.uint8)
LABELS = np.arange(60) % 3
SMALL = {"encoder": SMALL_ENCODER, "size": 16, "hidden": 16, "projection": 8, "batch": 16, "epochs": 2}
SMALL |= {"optimizer": "adamw", "lr": 0.01, "device": "cpu", "progress": False, "knn_every": 1}


def parts(name):
    return Dataset.resolve(DataSpec(name)).parts


def saved(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


@pytest.mark.parametrize(
    "laid_out",
    [
        GREY,
        GREY[..., None],
        GREY[:, None],
        np.repeat(GREY[..., None], 3, axis=3),
        np.repeat(GREY[:, None], 3, axis=1),
        np.asfortranarray(np.repeat(GREY[:, None], 3, axis=1)),
    ],
)
def test_channels_may_be_missing_first_or_last(tmp_path, laid_out):
    found = parts(saved(tmp_path / "a.npz", images=laid_out, labels=LABELS))["train"]
    assert found.pixels.shape[1] in (laid_out.shape[1:2] + laid_out.shape[3:4] if laid_out.ndim == 4 else (1,))
    in_colour = Dataset.resolve(DataSpec(str(tmp_path / "a.npz"))).split("validation").train
    assert in_colour.pixels.shape[1:] == (3, 9, 7)
    for channel in range(found.channels):
        assert np.array_equal(found.pixels[:, channel].numpy(), GREY)
    np.save(tmp_path / "b.npy", laid_out)
    alone = parts(str(tmp_path / "b.npy"))["train"]
    assert torch.equal(alone.pixels, found.pixels)
    assert alone.classes == ()
    assert (alone.labels == -1).all()


def test_colours_keep_their_order(tmp_path):
    colours = np.random.default_rng(1).integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
    found = parts(saved(tmp_path / "a.npz", images=colours))["train"].pixels
    assert np.array_equal(found.permute(0, 2, 3, 1).numpy(), colours)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (LABELS, ("0", "1", "2")),
        (LABELS[:, None].astype(np.uint8), ("0", "1", "2")),
        (LABELS * 5 + 2, ("2", "7", "12")),
        (np.array(["cat", "ant", "bee"])[LABELS], ("ant", "bee", "cat")),
        (np.where(LABELS == 1, -1, LABELS), ("0", "2")),
    ],
)
def test_labels_are_numbered(tmp_path, labels, classes):
    found = parts(saved(tmp_path / "a.npz", images=GREY, labels=labels))["train"]
    assert found.classes == classes
    told = [classes[n] if n >= 0 else "-1" for n in found.labels.tolist()]
    assert told == [str(label) for label in np.ravel(labels).tolist()]


@pytest.mark.parametrize("names", ["{}_images {}_labels", "x_{} y_{}"])
def test_parts_by_the_names_that_others_give_them(tmp_path, names):
    arrays = {}
    for part, rows in (("train", slice(0, 30)), ("val", slice(30, 40)), ("test", slice(40, 60))):
        images, labels = names.format(part, part).split()
        arrays |= {images: GREY[rows], labels: LABELS[rows]}
    path = saved(tmp_path / "a.npz", **arrays)
    for holdout, rows in (("validation", slice(30, 40)), ("test", slice(40, 60))):
        learnt, held_out = load_data(path, holdout)
        assert np.array_equal(learnt.pixels[:, 0].numpy(), GREY[:30])
        assert np.array_equal(held_out.pixels[:, 0].numpy(), GREY[rows])
        assert held_out.labels.tolist() == LABELS[rows].tolist()


def test_labels_of_the_test_set_alone_are_none(tmp_path):
    path = saved(tmp_path / "a.npz", train_images=GREY, test_images=GREY[:9], test_labels=LABELS[:9])
    for holdout in ("validation", "test"):
        learnt, held_out = load_data(path, holdout)
        assert learnt.classes == held_out.classes == ()
        assert (held_out.labels == -1).all()
    with pytest.raises(UserError, match="supervised needs images with labels"):
        hs.pretrain("supervised", data=path, **those_of("supervised", **SMALL))


def test_a_part_of_one_image_and_other_arrays_do_no_harm(tmp_path):
    arrays = {"train_images": GREY, "train_labels": LABELS, "test_images": GREY[:1], "test_labels": LABELS[:1, None]}
    found = parts(saved(tmp_path / "a.npz", **arrays, class_names=np.array([{}])))
    assert found["test"].labels.tolist() == [0]
    assert found["train"].classes == ("0", "1", "2")
    mixed = {**arrays, "train_labels": LABELS.astype(np.uint64), "test_labels": LABELS[:1].astype(bool)}
    assert parts(saved(tmp_path / "b.npz", **mixed))["train"].classes == ("0", "1", "2")


@pytest.mark.parametrize("labels", [np.zeros(4, int), np.arange(4)])
def test_at_least_two_are_held_out(tmp_path, labels):
    learnt, held_out = load_data(saved(tmp_path / "a.npz", images=GREY[:4], labels=labels))
    assert (len(learnt), len(held_out)) == (2, 2)


def test_a_run_notices_that_its_arrays_have_changed(tmp_path):
    path = saved(tmp_path / "own.npz", images=GREY, labels=LABELS)
    run = hs.pretrain("byol", data=path, out=tmp_path / "run", **{**SMALL, "epochs": 1})
    run.evaluate("knn")
    saved(tmp_path / "own.npz", images=GREY, labels=LABELS[::-1])
    for use in (lambda: run.evaluate("knn"), lambda: hs.pretrain(resume=run.path), lambda: hs.diagnose(run)):
        with pytest.raises(UserError, match=r"its images, labels or held-out images have changed since the run began"):
            use()


def test_what_cannot_be_found_again_is_refused():
    for data in (lambda: GREY, [GREY], 3):
        wanted = "`data` must be a name, .*, arrays, .*, or a function at the top of a module .*"
        with pytest.raises(UserError, match=f"{wanted}, got {type(data).__name__}"):
            hs.pretrain("byol", data=data)


def test_a_folder_may_be_called_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("trip:paris", "a.npz"):
        assert isinstance(Dataset.resolve(DataSpec(name)), ObjectDataset)
        (tmp_path / name).mkdir()
        assert isinstance(Dataset.resolve(DataSpec(name)), FolderDataset)


def test_without_parts_some_of_each_class_are_held_out(tmp_path):
    learnt, held_out = load_data(saved(tmp_path / "a.npz", images=GREY, labels=LABELS))
    assert held_out.labels.bincount().tolist() == [4, 4, 4]
    together = torch.cat([learnt.pixels, held_out.pixels])
    assert len(together.flatten(1).unique(dim=0)) == 60
    learnt, watched = load_data(saved(tmp_path / "b.npz", images=GREY))
    assert (len(learnt), len(watched)) == (60, 60)
    assert not Split(learnt, watched).apart
    assert load_data(saved(tmp_path / "c.npz", train_images=GREY[:40], val_images=GREY[40:])).apart


def test_a_run_from_its_start_to_another_set(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "own.npz", images=GREY, labels=LABELS)
    run = hs.pretrain("byol", data="own.npz", out="run", **SMALL)
    assert run.config.data == str(tmp_path / "own.npz")
    assert "knn" in run.metrics[-1]
    assert run.labelled
    assert (run.step, hs.load_run("run").steps) == (2 * (48 // 16), run.step)
    told = capsys.readouterr().err
    assert "own.npz: 60 images of 9 × 7 pixels; 3 classes" in told
    assert "input 16 × 16, batch 16, 2 epochs, " in told
    assert "; 48 training images, 12 held out" in told
    for n, (image, label) in enumerate(zip(GREY, LABELS, strict=True)):
        (tmp_path / f"folder/{label}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / f"folder/{label}/{n}.png")
    found = run.evaluate("knn", transfer=["folder", "digits"])
    assert set(found) == {f"transfer/{name}/{what}" for name in ("folder", "digits") for what in ("knn", "sphere")}
    assert main(["evaluate", "run", "--transfer", "own.npz", "--probes", "knn"]) == 2
    assert "own.npz is the run's own dataset" in capsys.readouterr().err
    saved(tmp_path / "other.npz", images=GREY, labels=LABELS)
    assert main(["evaluate", "run", "--transfer", "other.npz", "--probes", "knn"]) == 0
    assert main(["evaluate", "run", "--holdout", "test"]) == 2
    assert "has no test set: add arrays test_images and test_labels" in capsys.readouterr().err
    (tmp_path / "own.npz").rename("moved.npz")
    assert main(["evaluate", "run", "--transfer", "other.npz", "--probes", "knn"]) == 0  # none of the run's own needed
    assert "other.npz" in capsys.readouterr().out


def test_a_grey_encoder_is_measured_on_a_folder(tmp_path):
    for n, (image, label) in enumerate(zip(GREY, LABELS, strict=True)):
        (tmp_path / f"folder/{label}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / f"folder/{label}/{n}.png")
    run = hs.pretrain(
        "byol", data="digits", encoder=SMALL_ENCODER, epochs=1, hidden=16, out=tmp_path / "run", progress=False
    )
    folder = tmp_path / "folder"
    assert f"transfer{folder}/knn" in run.evaluate("knn", transfer=folder)


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    lines = ["import numpy as np, torch", "images = torch.arange(40 * 64).view(40, 8, 8).to(torch.uint8)"]
    lines += ["def alone(): return images", "def pair(): return images.numpy(), [0, 1] * 20", "def nothing(): return 3"]
    lines += ["def parts(): return {'train_images': images, 'test_images': images[:9], 'test_labels': None}"]
    lines += ["def gone(): return np.load('gone.npy')", "def wrong(): raise RuntimeError('one\\ntwo')"]
    lines.append("def ragged(): return alone(), np.array([[0], [1, 2]] * 20, dtype=object)")
    lines.append("def column(): return alone(), np.array(['dog', 'cat'] * 20, dtype=object)")  # as of pandas
    (tmp_path / "own_images.py").write_text("\n".join(lines))
    yield "own_images"
    sys.modules.pop("own_images", None)


def test_functions_that_make_them(module, tmp_path):
    wanted = torch.arange(40 * 64).view(40, 1, 8, 8).to(torch.uint8)
    for name in ("alone", "pair", "parts"):
        assert torch.equal(parts(f"{module}:{name}")["train"].pixels, wanted)
    assert parts(f"{module}:pair")["train"].classes == ("0", "1")
    assert parts(f"{module}:column")["train"].classes == ("cat", "dog")
    with pytest.raises(UserError, match=r"labels must be integers or strings, .* got object of shape"):
        parts(f"{module}:ragged")
    assert len(load_data(f"{module}:parts", "test")[1]) == 9
    import own_images

    run = hs.pretrain("byol", data=own_images.alone, out=tmp_path / "run", **{**SMALL, "epochs": 1})
    assert hs.pretrain(resume=tmp_path / "run", data=own_images.alone, progress=False).step == run.step
    assert run.config.data == "own_images:alone"
    assert not run.labelled
    with pytest.raises(UserError, match="has no labels, which probes need"):
        run.evaluate("knn")
    with pytest.raises(UserError, match=r"own_images:nothing must be images, \(images, labels\), .* got int"):
        parts(f"{module}:nothing")
    with pytest.raises(UserError, match=r"own_images:gone failed \(FileNotFoundError: .*'gone.npy'\)$"):
        parts(f"{module}:gone")
    with pytest.raises(UserError, match=r"own_images:wrong failed \(RuntimeError: one\)$"):
        parts(f"{module}:wrong")


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        (
            {"images": GREY / 127},
            "images: its pixels are floats up to 2.00.*: scale them to 0 … 1, or set `white`",
        ),
        ({"images": GREY[0]}, r"must be bytes, .* got uint8 of shape \(9, 7\)"),
        ({"images": np.zeros((2, 600, 600, 600), bool)}, r"must have at most 512 channels, got bool of shape"),
        ({"images": GREY[:0]}, r"must be bytes, .* got uint8 of shape \(0, 9, 7\)"),
        ({"pictures": GREY}, r"no training images: name the array one of images, .* \(found pictures\)"),
        (
            {"images": GREY, "labels": LABELS[:9]},
            "labels must be integers or strings, one for each of the 60 images",
        ),
        (
            {"images": GREY, "train_labels": LABELS},
            r"train_labels has no matching array of images",
        ),
        ({"images": GREY, "labels": LABELS, "val_images": GREY[:1]}, "at least two images must be held out, got 1"),
        (
            {"train_images": GREY, "train_labels": LABELS, "test_images": GREY, "test_labels": LABELS.astype(str)},
            "labels must be integers in all of train, test, or strings in all",
        ),
        (
            {"images": GREY, "labels": LABELS / 2},
            "labels must be integers or strings, one for each of the 60 images",
        ),
        ({"images": GREY, "labels": np.array([{}] * 60)}, "cannot be read"),
    ],
)
def test_what_is_wrong_is_told(tmp_path, arrays, told):
    with pytest.raises(UserError, match=told):
        hs.pretrain("byol", data=saved(tmp_path / "a.npz", **arrays))


def test_files_that_are_none(tmp_path):
    (tmp_path / "junk.npz").write_bytes(b"junk")
    (tmp_path / "cut.npy").write_bytes(b"\x93NUMPY\x01\x00")
    for name, told in (("gone.npz", "file not found"), ("junk.npz", "cannot be read"), ("cut.npy", "cannot be read")):
        with pytest.raises(UserError, match=told):
            parts(str(tmp_path / name))
    assert isinstance(Dataset.resolve(DataSpec("a.npz/folder")), FolderDataset)


def test_images_of_another_size_were_not_learnt_from(tmp_path):
    name = saved(tmp_path / "a.npz", train_images=GREY, val_images=GREY[:9, :5, :5])
    assert load_data(name, "validation").apart


def test_the_first_of_the_names_is_meant(tmp_path):
    """Others are no images: coordinates, say."""
    found = parts(saved(tmp_path / "a.npz", images=GREY, labels=LABELS, x=np.arange(60.0), y=np.arange(60.0)))
    assert found["train"].labels.tolist() == LABELS.tolist()


ROWS = np.random.default_rng(3).integers(0, 256, (24, 8, 8), dtype=np.uint8)


@pytest.mark.parametrize(
    ("images", "white", "wanted"),
    [
        (ROWS.astype(np.int64), None, ROWS),
        (ROWS.astype(np.int16), None, ROWS),
        (torch.from_numpy(ROWS).int(), None, ROWS),
        (ROWS.astype(np.uint16) * 257, None, ROWS),
        (ROWS.astype(">u2"), None, ROWS * 0),  # 16 bits, as the dtype says: black
        (ROWS.astype(np.int32) * 257, None, ROWS),
        (ROWS.astype(np.int64) * 16, 4095, ROWS),
        (torch.from_numpy(ROWS / 255).bfloat16(), None, ROWS),
        (ROWS > 127, None, (ROWS > 127) * 255),
    ],
)
def test_the_white_value_follows_dtype_and_range(images, white, wanted):
    found = remember_object(images, white).parts["train"].pixels[:, 0].numpy().astype(int)
    atol = 1 if isinstance(images, torch.Tensor) and images.dtype == torch.bfloat16 else 0
    np.testing.assert_allclose(found, wanted, atol=atol)


def test_the_arrays_of_all_splits_have_one_white_value():
    dark = np.minimum(ROWS.astype(np.int32), 255)
    parts = remember_object({"x_train": ROWS.astype(np.int32) * 200, "x_val": dark}).parts
    assert not parts["val"].pixels.any()  # of 65,535
    assert parts["train"].pixels.max() == int(ROWS.max()) * 200 // 256


def test_arrays_whose_values_mean_nothing_are_refused():
    with pytest.raises(UserError, match="data, images: its pixels reach 70,000, more than 16 bits: scale them, or set"):
        remember_object(np.full((4, 8, 8), 70_000))
    lost = np.where(np.arange(24)[:, None, None] % 3 == 1, np.nan, ROWS / 255)
    with pytest.raises(UserError, match="8 of 24 images have NaN or infinite pixels, such as image 1: replace"):
        remember_object(lost)


def test_dark_arrays_are_told_on_a_line_of_their_own(tmp_path, capsys):
    path = saved(tmp_path / "dark.npz", images=ROWS.astype(np.uint16) * 16, x_val=ROWS[:7].astype(np.uint16) * 16)
    assert main(["data", path]) == 0
    summary, warning, _ = capsys.readouterr().out.splitlines()
    assert summary.endswith("24 images of 8 × 8 pixels; no labels; also 7 val images")
    assert (
        warning == f"{path}: 16-bit pixels reach only 4,080 of 65,535, so images look dark: set `white`, such as 4095"
    )
    assert main(["data", path, "--white", "4095"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [summary, f"next: hypersphere pretrain --data {path} --white 4095"]
    assert not Dataset.resolve(DataSpec(saved(tmp_path / "b.npz", images=ROWS.astype(np.int64)))).warning()


def test_labels_that_have_no_effect_are_an_error(tmp_path, capsys):
    path = saved(tmp_path / "a.npz", images=ROWS)
    assert main(["data", path, "--white", "7"]) == 2
    assert "white" in capsys.readouterr().err
    assert main(["data", "digits", "--labels", "nofile.csv"]) == 2
    assert "--labels has no effect on digits: it applies to folders" in capsys.readouterr().err
    for words in (["data", path], ["pretrain", "byol", "--data", path]):
        assert main([*words, "--labels", "nofile.csv"]) == 2
        told = capsys.readouterr().err
        assert (
            f"--labels has no effect on {path}: it applies to folders, zip files and tar files; put them into" in told
        )
