"""Images given as objects: arrays in memory, datasets of torch and of Hugging Face."""

import gc
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.data import resolving
from hypersphere.data.bands import Unreadable
from hypersphere.data.file_datasets import FolderDataset
from hypersphere.data.resolving import dataset_of
from hypersphere.data.splits import evenly
from hypersphere.data.torch_datasets import labels_of, pixels_of
from hypersphere.errors import UserError
from tests.networks import SMALL_ENCODER

PIXELS = np.random.default_rng(0).integers(0, 256, (60, 12, 10, 3), dtype=np.uint8)
LABELS = np.arange(60) % 3
SMALL = {"encoder": SMALL_ENCODER, "size": 16, "hidden": 16, "projection": 8, "batch": 16, "epochs": 2}
SMALL |= {"optimizer": "adamw", "lr": 0.01, "device": "cpu", "progress": False, "knn_every": 1}


class Photos(Dataset):
    """As torchvision has them: PIL images with labels, one of which cannot be read."""

    classes = ("cat", "dog", "owl")
    targets = LABELS.tolist()

    def __len__(self):
        return len(PIXELS)

    def __getitem__(self, index):
        if index == 7:
            raise OSError("truncated file")
        return Image.fromarray(PIXELS[index]), self.targets[index]


def weights(run):
    return torch.cat([p.detach().flatten() for p in run.encoder.parameters()])


def test_arrays_are_learned_from_as_those_of_a_file(tmp_path):
    np.savez(tmp_path / "a.npz", images=PIXELS, labels=LABELS)
    of_file = hs.pretrain("byol", data=tmp_path / "a.npz", out=tmp_path / "file", **SMALL)
    for name, data in (
        ("pair", (PIXELS, LABELS)),
        ("dictionary", {"images": PIXELS, "labels": LABELS}),
        ("tensors", (torch.from_numpy(PIXELS).permute(0, 3, 1, 2), torch.from_numpy(LABELS))),
        ("floats", (PIXELS / 255, LABELS.tolist())),
    ):
        run = hs.pretrain("byol", data=data, out=tmp_path / name, **SMALL)
        assert torch.equal(weights(run), weights(of_file))
        assert run.evaluate("knn") == of_file.evaluate("knn")
    assert not hs.pretrain("byol", data=PIXELS, out=tmp_path / "alone", **SMALL).labelled


def test_a_run_on_arrays_is_loaded_without_them_and_continued_with_them(tmp_path):
    run = hs.pretrain("byol", data=(PIXELS, LABELS), out=tmp_path / "run", **SMALL)
    after = weights(run)
    del run
    gc.collect()
    again = hs.load_run(tmp_path / "run", "cpu")
    assert torch.equal(weights(again), after)
    assert again.encode(torch.zeros(2, 3, 16, 16, dtype=torch.uint8)).shape[0] == 2
    assert (again.steps, again.labelled) == (again.step, True)
    with pytest.raises(UserError, match=r"in-memory-\w+ was an object in memory: pass it again in Python: "):
        again.evaluate("knn")
    with_images = hs.load_run(tmp_path / "run", "cpu", data=(PIXELS, LABELS))
    assert with_images.evaluate("knn")["knn"]["top1"] >= 0
    with pytest.raises(UserError, match=r"was trained on in-memory-\w+, not on the `data` given"):
        hs.load_run(tmp_path / "run", data=PIXELS)
    del with_images
    gc.collect()
    (tmp_path / "run/checkpoint.pt").unlink()
    with pytest.raises(UserError, match="was an object in memory"):
        hs.pretrain(resume=tmp_path / "run", progress=False)
    with pytest.raises(UserError, match=r"cannot resume .*: its data is 'in-memory-\w+', not 'in-memory-\w+'"):
        hs.pretrain(resume=tmp_path / "run", data=(PIXELS[::-1].copy(), LABELS), progress=False)
    resumed = hs.pretrain(resume=tmp_path / "run", data=(PIXELS, LABELS), progress=False)
    assert torch.equal(weights(resumed), after)


def test_a_torch_dataset_is_read_sample_by_sample(tmp_path, capsys):
    run = hs.pretrain("byol", data=Photos(), out=tmp_path / "run", workers=1, **SMALL)
    told = capsys.readouterr().err
    assert "60 images of 12 × 10 pixels; 3 classes: cat, dog, owl" in told
    assert "sample 7 (OSError: truncated file)" in told
    assert run.step == 2 * (48 // 16)
    assert "knn" in run.metrics[-1]
    assert run.evaluate("knn")["knn"]["top1"] >= 0
    assert hs.diagnose(run).findings


def test_a_dataset_gives_what_a_folder_of_the_same_images_gives(tmp_path):
    """But for the order of the images, which is that of the dataset."""
    split = dataset_of({"train": Photos(), "test": Subset(Photos(), range(9, 20))}).split("test")
    assert (len(split.train), len(split.held_out), split.apart) == (60, 11, True)
    held = split.held_out.decoded(16, 0, 100)
    for n in range(11):
        Image.fromarray(PIXELS[9 + n]).save(tmp_path / f"{n:02}.png")
    of_files = hs.data.Dataset.resolve(hs.data.DataSpec(str(tmp_path))).parts["train"].decoded(16, 0, 100)
    assert torch.equal(held.pixels, of_files.pixels)
    assert held.labels.tolist() == LABELS[9:20].tolist()


def test_labels_are_known_without_reading_images():
    tensors = TensorDataset(torch.from_numpy(PIXELS), torch.from_numpy(LABELS))
    assert labels_of(Subset(Photos(), [3, 4]))[0].tolist() == [0, 1]
    assert labels_of(ConcatDataset([Photos(), Photos()]))[0].tolist() == [*LABELS, *LABELS]
    assert labels_of(ConcatDataset([Photos(), tensors])) == (None, ())
    assert labels_of(tensors)[0].tolist() == LABELS.tolist()
    assert labels_of(TensorDataset(torch.from_numpy(PIXELS))) == (None, ())
    given = dataset_of((TensorDataset(torch.from_numpy(PIXELS)), [("b", "a")[n % 2] for n in range(60)]))
    assert given.parts["train"].classes == ("a", "b")


def test_splits_share_their_classes():
    """Of labels without names, too: a split may lack a class."""
    images = torch.from_numpy(PIXELS)
    train, test = (TensorDataset(images, torch.from_numpy(labels)) for labels in (LABELS, LABELS % 2 + 1))
    parts = dataset_of({"train": train, "test": test}).parts
    assert parts["test"].classes == parts["train"].classes == ("0", "1", "2")
    assert parts["test"].labels.tolist() == (LABELS % 2 + 1).tolist()


def test_arrays_in_any_layout_are_converted():
    reversed_floats = (PIXELS / 255).astype(">f4")[:, ::-1]
    found = dataset_of(reversed_floats).parts["train"].pixels
    assert np.array_equal(found.permute(0, 2, 3, 1).numpy(), PIXELS[:, ::-1])


def test_a_folder_with_a_file_of_that_name_is_still_a_folder(tmp_path):
    Image.fromarray(PIXELS[0]).save(tmp_path / "a.png")
    (tmp_path / "state.json").write_text("{}")
    assert isinstance(dataset_of(tmp_path), FolderDataset)


def test_samples_may_be_of_many_kinds():
    grey = PIXELS[0, :, :, 0]
    for image in (grey, grey[..., None], torch.from_numpy(grey.copy())[None], Image.fromarray(grey), grey / 255):
        assert torch.equal(pixels_of(image), torch.from_numpy(grey.copy()).expand(3, -1, -1))
    for image, told in (
        (np.zeros((2, 9, 9)), "it has 2 channels, not 1 or 3"),
        (np.zeros(3), r"it has shape \(3,\)"),
        (torch.randn(3, 8, 8), "remove normalization"),
        ("a.png", "sample is a str, not an image"),
    ):
        with pytest.raises(Exception, match=told):
            pixels_of(image)


def test_a_dataset_that_cannot_be_used_is_refused():
    with pytest.raises(
        UserError,
        match=r"the first sample of the dataset cannot be read: its pixels go down to .* remove normalization",
    ):
        hs.pretrain("byol", data=TensorDataset(torch.randn(8, 3, 9, 9)))
    with pytest.raises(UserError, match=r"data has no split train: found test"):
        hs.pretrain("byol", data={"test": Photos()})
    with pytest.raises(UserError, match="has no samples"):
        hs.pretrain("byol", data=Subset(Photos(), []))


class Listed(Dataset):
    """Samples as given, by number."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, number):
        return self.samples[number]


ROWS = PIXELS[..., 0].astype(np.int64)


def test_the_samples_of_a_dataset_have_one_white_value():
    for samples in (ROWS, torch.from_numpy(ROWS).int(), [{"image": row.tolist()} for row in ROWS]):
        found = dataset_of(Listed(samples)).parts["train"].in_channels(1).decoded(10, 0, 100)
        of_bytes = dataset_of(Listed(ROWS.astype(np.uint8))).parts["train"].in_channels(1).decoded(10, 0, 100)
        assert torch.equal(found.pixels, of_bytes.pixels)
    deep = ROWS * 257
    deep[5:] //= 257  # dark ones among images of 16 bits stay dark
    assert not dataset_of(Listed(deep)).parts["train"].reader.read(7, None).any()
    odd = ROWS.copy()
    odd[1] *= 16
    with pytest.raises(Unreadable, match="although others do not exceed 255"):
        dataset_of(Listed(odd)).parts["train"].reader.read(1, None)


def test_dark_samples_are_told():
    whole = dataset_of(Listed((ROWS * 16).astype(np.uint16)))
    most = int(ROWS[evenly(60, 16)].max()) * 16
    assert (
        f"16-bit pixels reach only {most:,} of 65,535, so images look dark: set `white`, such as 4095"
        in whole.warning()
    )
    photos = [Image.fromarray((row * 16).astype(np.uint16)) for row in ROWS]
    assert dataset_of(Listed(photos)).warning() == whole.warning().replace(whole.name, dataset_of(Listed(photos)).name)
    for samples in (ROWS, ROWS / 255, ROWS.astype(np.uint8), [Image.fromarray(row) for row in PIXELS]):
        assert not dataset_of(Listed(samples)).warning()


def test_samples_with_nan_are_left_out(tmp_path):
    floats = np.where(np.arange(60)[:, None, None] % 10 == 3, np.nan, ROWS / 255)
    run = hs.pretrain("byol", data=Listed(floats), out=tmp_path / "run", **SMALL)
    lost = (tmp_path / "run/unreadable.tsv").read_text().splitlines()
    assert sorted(line.split("\t")[0] for line in lost) == sorted(f"sample {n}" for n in range(3, 60, 10))
    assert "NaN or infinite" in lost[0]
    assert run.step > 0


def test_arrays_in_a_hugging_face_dataset():
    datasets = pytest.importorskip("datasets")
    rows = {"image": list(PIXELS), "label": LABELS.tolist()}
    kinds = {"image": datasets.Array3D(PIXELS.shape[1:], "uint8"), "label": datasets.ClassLabel(names=["a", "b", "c"])}
    whole = datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))
    for form in (None, "numpy", "torch"):
        found = dataset_of(whole.with_format(form)).parts["train"]
        assert found.labels.tolist() == LABELS.tolist()
        assert np.array_equal(found.reader.read(4, None).permute(1, 2, 0).numpy(), PIXELS[4])


def test_a_function_may_make_a_dataset(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    lines = ["import torch", "from torch.utils.data import TensorDataset"]
    lines += ["images = torch.arange(40 * 192).view(40, 3, 8, 8).to(torch.uint8)"]
    lines += ["def photos(): return TensorDataset(images, torch.arange(40) % 2)"]
    (tmp_path / "own_photos.py").write_text("\n".join(lines))
    where = ["--out", str(tmp_path / "run"), "--encoder", "hypersphere/digits", "--hidden", "16", "--epochs", "1"]
    assert main(["pretrain", "byol", "--data", "own_photos:photos", "--size", "16", "--batch", "8", *where]) == 0
    assert main(["evaluate", str(tmp_path / "run"), "--probes", "knn"]) == 0
    sys.modules.pop("own_photos")


def test_a_hugging_face_dataset(tmp_path, capsys):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog", "owl"])})
    rows = {"image": [Image.fromarray(pixels) for pixels in PIXELS], "label": LABELS.tolist()}
    whole = datasets.Dataset.from_dict(rows, features=features)
    parts = datasets.DatasetDict({"train": whole.select(range(48)), "test": whole.select(range(48, 60))})
    of_arrays = hs.pretrain("byol", data=(PIXELS, LABELS), out=tmp_path / "arrays", **SMALL)
    run = hs.pretrain("byol", data=parts, holdout="test", out=tmp_path / "run", **SMALL)
    assert "48 images of 12 × 10 pixels; 3 classes: cat, dog, owl" in capsys.readouterr().err
    assert run.evaluate("knn", holdout="test").keys() == of_arrays.evaluate("knn").keys()
    decoded = dataset_of(whole).parts["train"].decoded(16, 0, 100)
    assert decoded.labels.tolist() == LABELS.tolist()
    parts.save_to_disk(tmp_path / "saved")
    where = ["--out", str(tmp_path / "again"), "--encoder", "hypersphere/digits", "--hidden", "16", "--epochs", "1"]
    words = ["pretrain", "byol", "--data", str(tmp_path / "saved"), "--size", "16", "--batch", "16", *where]
    assert main(words) == 0
    assert main(["evaluate", str(tmp_path / "again"), "--probes", "knn", "--holdout", "test"]) == 0
    saved = hs.data.Dataset.resolve(hs.data.DataSpec(str(tmp_path / "saved")))
    assert len(saved.edition()) == 8  # so that a sweep notices other images


def test_the_example_of_a_kind_of_data_in_the_docs(tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "own-dataset.md").read_text(encoding="utf-8")
    made, branch = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[:2]
    space = {}
    exec(made, space)  # the example, as it stands there
    exec(branch, space)
    known = resolving.resolve
    monkeypatch.setattr(resolving, "resolve", lambda options: space["resolve"](options) or known(options))
    run = hs.pretrain("byol", data="noise", out=tmp_path / "run", **{**SMALL, "epochs": 1, "size": 32})
    assert run.step == 900 // 16
    assert hs.diagnose(run).findings
