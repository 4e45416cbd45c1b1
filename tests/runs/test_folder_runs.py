"""Runs on a folder of pictures: what is found, learnt from, skipped, and gone on with."""

import json
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.config import recipe
from hypersphere.data import Dataset, file_datasets, loader
from hypersphere.errors import UserError
from hypersphere.evaluate.features import put_batch_statistics
from hypersphere.inference.embed_to_file import embed
from hypersphere.inference.exporting import export
from hypersphere.report.page import page
from hypersphere.report.run_data import read_run_data
from hypersphere.runs import recipes
from hypersphere.runs.build import view_pipeline
from hypersphere.runs.pretraining import agreeing
from hypersphere.runs.recipes import unused_options
from hypersphere.train import record
from hypersphere.util.trust import trust
from tests.folders import SMALL, draw, weights
from tests.processes import without_privileges


def test_a_folder_of_classes(folder, capsys, tmp_path):
    run = hs.pretrain("byol-mhe", data=str(folder), out=tmp_path / "run", **SMALL)
    told = capsys.readouterr().err
    assert "39 images (26 png, 13 jpg), shorter side 20 to 20 pixels" in told.replace(
        "25 png, 14 jpg", "26 png, 13 jpg"
    )
    assert "pixels (median 20)" in told
    assert "; 2 classes: blue, red\n" in told
    assert "input 16 × 16, batch 8, " in told
    assert "3 files could not be read" in told
    listed = (tmp_path / "run/unreadable.tsv").read_text().splitlines()
    assert [line.split("/")[-1].split("\t")[0] for line in listed] == ["cut.jpg", "broken.jpg", "empty.png"]
    last = run.metrics[-1]
    assert {"knn", "uniformity_of_features", "spread", "energy/output"} <= last.keys()
    found = run.evaluate(("knn", "linear-cached"))
    assert found["knn"]["top1"] == 100.0  # red and blue are told apart by anything
    assert hs.diagnose(run).findings[0].name == "alignment"
    assert main(["evaluate", str(run.path), "--probes", "knn", "--device", "cpu"]) == 0


def test_folders_that_cannot_be_read(folder, tmp_path):
    """Of three classes one is closed; then all are."""
    draw(folder / "green/1.png", 1, (20, 180, 20))
    (folder / "green").chmod(0)
    small = [f"--{name}={SMALL[name]}" for name in SMALL if name != "progress"]
    run, vectors, again = tmp_path / "run", tmp_path / "vectors.npz", tmp_path / "again.npz"
    pretrain, embed = without_privileges(
        ["pretrain", "byol", "--data", folder, "--out", run, *[word.replace("_", "-") for word in small]],
        ["embed", run, folder, "-o", vectors],
    )
    assert "; 2 classes: blue, red; 1 folder could not be read\n" in pretrain.stderr
    assert f"1 folder could not be read: green (Permission denied); see {run}" in pretrain.stderr
    for found, listed in ((pretrain, run / "unreadable.tsv"), (embed, tmp_path / "vectors.unreadable.tsv")):
        assert "3 files and 1 folder could not be read" in found.stderr
        assert f"{folder}/green/\tPermission denied\n" in listed.read_text()
    assert "36 images, 32 numbers each; 4 unreadable" in embed.stdout
    for closed in (folder / "red", folder / "blue"):
        closed.chmod(0)
    found = without_privileges(["pretrain", "byol", "--data", folder], ["embed", run, folder, "-o", again])
    for each in found:
        assert each.returncode == 2
        assert f"no readable images below {folder}: cannot open {folder}/" in each.stderr
    for closed in folder.iterdir():
        closed.chmod(0o700)


def test_pictures_without_labels(folder, tmp_path, capsys):
    for path in folder.glob("*/*.*"):
        path.rename(folder / path.name)
    run = hs.pretrain("byol", data=str(folder), out=tmp_path / "run", **SMALL)
    assert "knn" not in run.metrics[-1]
    assert "uniformity_of_features" in run.metrics[-1]
    assert "39 training images, 39 of them monitored" in capsys.readouterr().err
    assert re.search(r": \d+ training images of /", hs.diagnose(run).of)
    portrait = read_run_data(run.path, "cpu", None)
    assert "the run holds out no images: those shown here are training images" in portrait.missing
    assert "Directions of the features of training images" in page([portrait])
    with pytest.raises(UserError, match="no labels"):
        run.evaluate(("knn",))


def test_labels_from_a_table(folder, tmp_path, monkeypatch):
    rows = [f"{p.relative_to(folder)},{p.parent.name}" for p in sorted(folder.glob("*/[0-9]*"))[::2]]
    (tmp_path / "labels.csv").write_text("path,label\n" + "\n".join(rows))
    monkeypatch.chdir(tmp_path)
    run = hs.pretrain("byol", data=str(folder), labels="labels.csv", out=tmp_path / "run", **SMALL)
    assert "knn" in run.metrics[-1]
    assert run.config.labels == str(tmp_path / "labels.csv")  # found again from any other folder
    older = run.config.replace(labels="labels.csv")
    for said in ("labels.csv", str(tmp_path / "labels.csv")):
        assert agreeing(older, older.replace(labels=said), run.path) == older
    for content, told in (
        ("a,b\n1,2", "columns path and label"),
        (
            "path,label\nx.png,cat",
            "names none of the images, such as .*: use absolute paths, or",
        ),
    ):
        (tmp_path / "labels.csv").write_text(content)
        with pytest.raises(UserError, match=told):
            recipes.recipe_for("byol", str(folder), labels=str(tmp_path / "labels.csv"))


def test_small_crops_of_files(folder, tmp_path):
    run = hs.pretrain(
        "swav-mhe", data=str(folder), out=tmp_path / "run", **{**SMALL, "small_crops": 2, "prototypes": 8}
    )
    assert {"knn", "spread", "swav", "regularizer"} <= {name for line in run.metrics for name in line}
    assert hs.diagnose(run).findings[0].name == "alignment"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_goes_on_in_the_middle_of_an_epoch_as_if_never_stopped(folder, tmp_path, monkeypatch, workers):
    """Although a file has vanished and another come meanwhile, neither of which it had met."""
    for name in ("red/broken.jpg", "red/empty.png", "blue/cut.jpg"):
        (folder / name).unlink()
    options = {**SMALL, "workers": workers, "knn_every": 0}
    seen = []
    finished = loader.finished
    monkeypatch.setattr(
        loader, "finished", lambda *given: (seen.append((given[3].epoch, given[2])), finished(*given))[1]
    )
    whole = hs.pretrain("byol", data=str(folder), out=tmp_path / "whole", **options)
    for epoch in range(2):
        samples = torch.cat([sample for e, sample in seen if e == epoch])
        assert len(samples) == len(samples.unique()) == 24  # three batches of 30 files
    write = record._write
    monkeypatch.setattr(
        record,
        "_write",
        lambda log, step, *a: (write(log, step, *a), step == 4 and signal.raise_signal(signal.SIGINT))[0],
    )
    with pytest.raises(KeyboardInterrupt):
        hs.pretrain("byol", data=str(folder), out=tmp_path / "part", **options)
    monkeypatch.setattr(record, "_write", write)
    draw(folder / "blue/new.png", 99, (0, 0, 0))
    went_on = hs.pretrain(resume=tmp_path / "part", progress=False)
    assert torch.equal(weights(went_on), weights(whole))
    assert (tmp_path / "part/metrics.jsonl").read_text() == (tmp_path / "whole/metrics.jsonl").read_text()


def test_what_a_run_holds_out_stays_held_out(folder, tmp_path):
    """Whatever is added to the folder later."""
    run = hs.pretrain("byol", data=str(folder), out=tmp_path / "run", **{**SMALL, "epochs": 1, "knn_every": 0})
    before = Dataset.resolve(run.config).split("validation", run.path)
    for n in range(6):
        draw(folder / f"blue/a{n}.png", n, (9, 9, 9))
    after = Dataset.resolve(run.config).split("validation", run.path)
    assert [part.paths for part in after] == [part.paths for part in before]
    assert all(torch.equal(a.labels, b.labels) for a, b in zip(after, before, strict=True))
    assert not set(before[0].paths) & set(before[1].paths)
    assert Dataset.resolve(run.config).split("validation")[0].paths != before[0].paths  # of a run that begins now


def test_only_what_was_held_out_is_called_so(folder, tmp_path, capsys):
    """An export beside its run knows; one elsewhere does not, nor is that known of other images."""
    run = hs.pretrain("byol", data=str(folder), out=tmp_path / "run", **{**SMALL, "epochs": 1})
    inside, apart = export(run.path), export(run.path, tmp_path / "apart")
    before = hs.diagnose(run)
    for n in range(30):
        draw(folder / f"red/more{n}.png", n, (99, 9, 9))
    assert hs.diagnose(inside).of == f"{inside}: {before.of.partition(': ')[2]}"
    assert " held-out images of " in before.of
    (tmp_path / "files.json").write_text("{}")  # of somebody else
    assert re.search(r": \d+ images of /", hs.diagnose(apart).of)
    draw(tmp_path / "other/a.png", 0, (99, 9, 9))
    draw(tmp_path / "other/b.png", 1, (99, 9, 9))
    assert f": 2 images of {tmp_path}/other" in hs.diagnose(run, data=str(tmp_path / "other")).of
    folder.rename(tmp_path / "moved")
    for path in (inside, apart):
        capsys.readouterr()
        assert main(["diagnose", str(path)]) == 2
        assert "--root" in capsys.readouterr().err
        assert hs.diagnose(path, root=tmp_path / "moved").findings


@pytest.mark.parametrize("labelled", [True, False])
def test_small_sets_of_train_val_and_test(tmp_path, labelled, capsys):
    """Fewer images of a class than a fifth could be taken of; none with a label at all."""
    for part, count in (("train", 10), ("val", 4), ("test", 6)):
        for n in range(count):
            draw(tmp_path / "in" / part / (f"{'ab'[n % 2]}/" if labelled else "") / f"{n}.png", n, (99, 9, 9))
    config = recipes.recipe_for("byol", str(tmp_path / "in"))
    assert config.batch == 5
    assert [len(files) for files in Dataset.resolve(config).split("test")] == [10, 6]
    assert [len(files) for files in Dataset.resolve(config).split("validation")] == [10, 4]
    for holdout in ("test", "validation"):
        run = hs.pretrain(
            "byol", data=str(tmp_path / "in"), holdout=holdout, out=tmp_path / holdout, **{**SMALL, "epochs": 1}
        )
        assert run.labelled == labelled
        assert f"10 training images, {6 if holdout == 'test' else 4} held out" in capsys.readouterr().err
        assert " held-out images of " in hs.diagnose(run).of
        assert read_run_data(run.path, "cpu", None).seen.sample.held_out


@pytest.mark.parametrize(("count", "batch", "few"), [(99, 16, True), (100, 16, False), (100, 15, True)])
def test_few_images_are_told(tmp_path, capsys, count, batch, few):
    for n in range(count):
        draw(tmp_path / f"in/{n}.png", n, (9, 99, 9))
    options = {**SMALL, "epochs": 1, "batch": batch, "knn_every": 0}
    hs.pretrain("byol", data=tmp_path / "in", out=tmp_path / "run", **options)
    told = f"{count} images in batches of {batch} are probably too few: use at least 100 images and"
    assert (told in capsys.readouterr().err) == few


def test_one_image_a_class(tmp_path):
    for n in range(24):
        draw(tmp_path / f"in/{n}/a.png", n, (9, 99, 9))
    run = hs.pretrain("byol", data=str(tmp_path / "in"), out=tmp_path / "run", **{**SMALL, "epochs": 1})
    assert len(Dataset.resolve(run.config).split("validation", run.path)[1]) == 4


def test_train_and_test_folders_are_a_split(folder, tmp_path, capsys):
    (tmp_path / "split").mkdir()
    folder.rename(tmp_path / "split/train")
    for n, kind in enumerate(("red", "blue") * 3):
        draw(tmp_path / f"split/val/{kind}/{n}.png", 100 + n, (180, 20, 20) if kind == "red" else (20, 20, 180))
    run = hs.pretrain("byol", data=str(tmp_path / "split"), holdout="test", out=tmp_path / "run", **SMALL)
    assert capsys.readouterr().err.count("has no test set: using its val set instead") == 1
    assert run.steps == 2 * (39 // 8)  # all of train
    assert run.evaluate(("knn",))["knn"]["top1"] == 100.0
    with pytest.raises(UserError, match="has no test set"):
        hs.pretrain("byol", data=str(tmp_path / "split/train"), holdout="test", **SMALL)


@pytest.fixture
def depths(tmp_path):
    """The same grey pictures twice: in 8 bits, and as 12-bit data in files of 16, a fourth of whose bits is noise."""
    rng = np.random.default_rng(0)
    for n in range(24):
        grey = rng.integers(0, 256, (20, 28)) // (1 + n % 2)
        for name, pixels in (("plain", grey.astype(np.uint8)), ("deep", (16 * grey + n % 16).astype(np.uint16))):
            path = tmp_path / name / "ab"[n % 2] / f"{n:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    return {"plain": None, "deep": 4095}


def test_white_is_that_of_whatever_is_done_with_a_run(depths, tmp_path, capsys):
    """From 12-bit data the same comes to the last bit as from the 8 bits that count."""
    found = {}
    for name, white in depths.items():
        folder, page = tmp_path / name, tmp_path / f"{name}.html"
        copy = shutil.copytree(folder, tmp_path / "copy", dirs_exist_ok=True)
        run = hs.pretrain("byol", data=str(folder), white=white, out=tmp_path / f"{name}-run", **SMALL)
        embed(run.path, folder, tmp_path / f"{name}.npz", device="cpu")
        exported = export(run.path, tmp_path / f"{name}-exported")
        query = min(copy.rglob("*.png"))
        assert main(["neighbours", str(tmp_path / f"{name}.npz"), str(query), "--page", str(page)]) == 0
        found[name] = [
            weights(run).tolist(),
            run.evaluate(("knn", "linear-cached", "linear")),
            run.evaluate("knn", transfer=str(copy)),
            np.load(tmp_path / f"{name}.npz")["vector"].tolist(),
            hs.load(exported, "cpu").encode([query, Image.open(query)]).tolist(),
            [hs.diagnose(of, data=data, images=4).findings for of in (run, exported) for data in (None, str(copy))],
            read_run_data(run.path, "cpu", None).seen.sample.images.pixels.tolist(),
            re.findall("base64,[^)]*", page.read_text()),
        ]
    for plain, deep in zip(*found.values(), strict=True):
        assert plain == deep
    capsys.readouterr()
    assert main(["pretrain", "byol", "--data", str(tmp_path / "deep"), "--white", "4095", "--batch", "4096"]) == 2
    assert "dark" not in capsys.readouterr().err
    assert main(["pretrain", "byol", "--data", str(tmp_path / "deep"), "--batch", "4096"]) == 2
    assert "of 65,535, so images look dark" in capsys.readouterr().err
    assert unused_options(recipe("byol", "digits", white=4095)) == ["white"]


def test_mistakes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/a.png").write_bytes(b"junk")
    draw(tmp_path / "single/a.png", 9, (9, 99, 9))
    (tmp_path / "tars").mkdir()
    (tmp_path / "tars/part.tar").write_bytes(b"")
    for data, told in (
        ("./gone", f"folder not found: {tmp_path}/gone"),
        ("single/a.png", "single/a.png is a single image: pass the folder that contains the images"),
        ("none", "no images below"),
        ("bad", "none of 1 checked files is an image"),
        ("cifar11", "did you mean 'cifar10'"),
        ("cifar11", "it is neither a file nor a folder nor one of"),
        ("single", "single has only one image: training needs at least two"),
        ("tars", "to read tar files, pass "),
    ):
        assert main(["pretrain", "byol", "--data", data]) == 2
        assert told in capsys.readouterr().err
    assert {p.name for p in tmp_path.iterdir()} == {"bad", "none", "single", "tars"}  # nothing was begun


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("epochs", "three", "epochs"),
        ("device", "gpu", "device gpu cannot be used here"),
        ("init", "nowhere.pt", "nowhere.pt is not a file: expected pretrained"),
        ("encoder", "resnet19", "unknown encoder 'resnet19'"),
        ("encoder", "torchvision/resnet19", "torchvision has no model 'resnet19'"),
        ("encoder", "timm/resnet19", "timm has no model 'resnet19'"),
        ("encoder", "no_such_module:net", "there is no module no_such_module"),
        ("hiden", "3", "did you mean"),
    ],
)
def test_mistakes_are_told_before_images_are_looked_for(tmp_path, capsys, monkeypatch, option, value, told):
    monkeypatch.setattr(file_datasets, "labelled_below", lambda *found: pytest.fail("looked"))
    assert main(["pretrain", "byol", "--data", str(tmp_path), f"--{option}", value]) == 2
    assert told in capsys.readouterr().err
    with pytest.raises(UserError, match=told.replace("device gpu", "`device` gpu")):
        hs.pretrain("byol", data=tmp_path, **{option: value})


def test_options_that_agree_with_what_is_found_are_right(tmp_path, capsys):
    """Although not with the defaults of other data."""
    for n in range(24):
        draw(tmp_path / f"in/{n}.png", n, (9, 99, 9))
    small = {name: value for name, value in SMALL.items() if name not in ("progress", "batch")}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in {**small, "micro_batch": 6}.items()]
    assert main(["pretrain", "byol", "--data", str(tmp_path / "in"), "--out", str(tmp_path / "run"), *words]) == 0


def test_a_portrait_shows_what_the_run_held_out_whatever_has_come_since(folder, tmp_path):
    run = hs.pretrain("byol", data=str(folder), out=tmp_path / "run", **{**SMALL, "epochs": 1})
    held_out = file_datasets.saved_files(run.path / "files.json")[1]
    wanted = held_out.decoded(run.dataset.stored_side(run.config.size), 0, 1000).pixels
    for n in range(20):
        draw(folder / "red" / f"0{n:02}-later.png", 100 + n, (20, 180, 20))
    found = read_run_data(run.path, "cpu", None).seen.sample
    assert torch.equal(found.images.pixels, wanted)
    twin = shutil.copytree(run.path, tmp_path / "twin")
    assert read_run_data(twin, "cpu", None).seen.sample is found
    listed = json.loads((twin / "files.json").read_text())
    listed["held_out"] = {name: values[1:] for name, values in listed["held_out"].items()}
    (twin / "files.json").write_text(json.dumps(listed))
    trust(twin)
    assert torch.equal(read_run_data(twin, "cpu", None).seen.sample.images.pixels, wanted[1:])


def test_another_folder_is_measured_where_it_lies(folder, tmp_path):
    """Whatever the folder of the data files is said to be."""
    run = hs.pretrain("byol", "digits", out=tmp_path / "run", **{**SMALL, "epochs": 1, "batch": 256, "knn_every": 0})
    run.config = run.config.replace(root=tmp_path / "nowhere")
    assert run.evaluate("knn", transfer=str(folder))


def test_what_cannot_be_read_of_the_held_out_images_is_told(tmp_path, capsys):
    for part, count in (("train", 12), ("val", 6)):
        for n in range(count):
            draw(
                tmp_path / f"in/{part}/{('red', 'blue')[n % 2]}/{n}.png",
                n,
                (180, 20, 20) if n % 2 == 0 else (20, 20, 180),
            )
    (tmp_path / "in/val/red/cut.png").write_bytes(b"no image")
    run = hs.pretrain("byol", data=str(tmp_path / "in"), out=tmp_path / "run", **{**SMALL, "epochs": 1})
    (line,) = (run.path / "unreadable.tsv").read_text().splitlines()
    assert line.startswith(f"{tmp_path}/in/val/red/cut.png\t")
    assert re.search(rf"1 file could not be read: cut.png \(.*\); see {run.path}", capsys.readouterr().err)
    hs.diagnose(run)
    assert "ignored 1 of 7 images that cannot be read: cut.png\n" in capsys.readouterr().err
    assert run.evaluate(("knn",))["sphere"]["images"] == 6


def test_a_table_of_some_images_says_how_many_have_no_label(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for n in range(12):
        draw(tmp_path / f"in/{n}.png", n, (20 * n, 20, 20))
    rows = [f"{n}.png,{n % 2}" for n in range(8)]
    (tmp_path / "some.csv").write_text("\n".join(["path,label", *rows, "gone.png,1"]))
    hs.pretrain("byol", data="in", labels="some.csv", out="run", **{**SMALL, "epochs": 1})
    told = capsys.readouterr().err
    assert "2 classes: 0, 1; 4 images without a label" in told
    assert told.count("1 row without an image") == 1


def test_a_folder_is_the_runs_however_it_is_named(folder, tmp_path, monkeypatch):
    run = hs.pretrain("byol", data=str(folder), out=tmp_path / "run", **{**SMALL, "epochs": 1})
    monkeypatch.chdir(folder.parent)
    for data in (folder, folder.name, Path(folder.name)):
        assert "held-out images of" in hs.diagnose(run, data=data).of


def test_the_random_encoder_is_the_same_during_training_and_in_evaluate(folder, tmp_path):
    """Its BatchNorm statistics are those of all images, though the folder lists one class after the other."""
    options = {**SMALL, "epochs": 1}
    for bad in ("red/broken.jpg", "red/empty.png", "blue/cut.jpg"):
        (folder / bad).unlink()
    run = hs.pretrain("simclr", data=str(folder), out=tmp_path / "run", **options)
    split = run.dataset.split("validation")
    pixels = run.dataset.in_memory(split)[0]
    loaders = [images.loader(view_pipeline(run.config), 0, torch.device("cpu")) for images in (split.train, pixels)]
    inputs = torch.cat([views for views, _ in loaders[0].centers()])
    for images in loaders:
        norm = torch.nn.BatchNorm2d(3)
        put_batch_statistics(norm, images)
        torch.testing.assert_close(norm.running_mean, inputs.mean((0, 2, 3)))
        torch.testing.assert_close(norm.running_var, inputs.var((0, 2, 3)), rtol=0.05, atol=0)
    (logged,) = (line["knn_at_start"] for line in run.metrics if "knn_at_start" in line)
    assert run.measure(("knn",), baseline=True)["random/knn"]["top1"] == logged
