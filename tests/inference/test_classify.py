"""A classifier from end to end: made, loaded, applied to files, exported as ONNX; and what is refused."""

import csv
import json
import shutil
from collections import Counter

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import Normalizer, StandardScaler

import hypersphere as hs
import hypersphere.inference.exporting as exporting
import hypersphere.inference.predicting as predicting
import hypersphere.inference.prediction_files as prediction_files
from hypersphere.cli import main
from hypersphere.data import load_data
from hypersphere.errors import UserError
from hypersphere.inference.exporting import export
from tests.inference.hands import read_card, told
from tests.inference.test_export import with_onnx
from tests.pictures import untrained


@pytest.fixture(scope="module")
def made(digits, tmp_path_factory):
    """A linear classifier of digits on an untrained encoder."""
    return hs.classify(digits, tmp_path_factory.mktemp("made"), device="cpu")


@pytest.fixture(scope="module")
def coloured(tmp_path_factory):
    """A folder of red, green and blue noise with a subfolder for each; the rest of its colours is random."""
    folder, rng = tmp_path_factory.mktemp("coloured"), np.random.default_rng(0)
    for n in range(90):
        pixels = rng.integers(0, 150, (20, 24, 3))
        pixels[..., n % 3] += 100
        name = ("red", "green", "blue")[n % 3]
        (folder / name).mkdir(exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{n}.png")
    return folder


@pytest.fixture(scope="module")
def of_colours(coloured, tmp_path_factory):
    """The run on these images, and its classifier."""
    run = untrained(tmp_path_factory.mktemp("colours") / "run", coloured, size=16, encoder="hypersphere/digits")
    return run, hs.classify(run, device="cpu")


def test_accuracy_is_that_of_scikit_learn_on_the_same_features(digits, made):
    train, held_out = load_data("digits")
    run = hs.load_run(digits, "cpu")
    (x, queries), about = (run.encode(images.pixels).numpy() for images in (train, held_out)), read_card(made.folder)
    if about["classifier"]["normalized"]:
        x, queries = (Normalizer().transform(features) for features in (x, queries))
    scaler = StandardScaler().fit(x)
    theirs = LogisticRegression(C=1 / about["classifier"]["decay"], max_iter=5000)
    theirs.fit(scaler.transform(x), train.labels.numpy())
    wanted = 100 * theirs.score(scaler.transform(queries), held_out.labels.numpy())
    assert made.accuracy.top1 == pytest.approx(wanted, abs=1)
    assert about["classifier"]["held_out"]["top1"] == made.accuracy.top1 > 70
    low, high = made.interval
    assert low < made.accuracy.top1 < high
    assert made.confusion.sum() == 300
    assert 100 * made.confusion.diag().sum() / 300 == pytest.approx(made.accuracy.top1)
    assert torch.equal(made.confusion.sum(1), held_out.labels.bincount())
    assert made.reliability.error < 0.1


def test_what_is_loaded_predicts_what_was_measured(made):
    loaded = hs.load(made.folder, "cpu")
    held_out = load_data("digits")[1]
    labels, probabilities, classes = loaded.predict(held_out.pixels)
    assert labels == [classes[n] for n in made.predicted.tolist()]
    assert classes == held_out.classes
    torch.testing.assert_close(probabilities.sum(1), torch.ones(300))
    temperature = read_card(made.folder)["classifier"]["temperature"]
    torch.testing.assert_close(probabilities, (made.scores / temperature).softmax(1), rtol=1e-4, atol=1e-5)
    assert loaded.predict([]).probabilities.shape == (0, 10)
    assert loaded.encode(held_out.pixels[:2]).shape == (2, 128)  # it is an encoder, too


def test_mistakes_are_wrong_and_most_confident_first(made):
    mistakes = made.mistakes(1000)
    assert len(mistakes) == int((made.predicted != made.truth).sum())
    assert all(one.truth != one.predicted == made.classes[made.predicted[one.sample]] for one in mistakes)
    probabilities = [one.probability for one in mistakes]
    assert probabilities == sorted(probabilities, reverse=True)
    assert made.mistakes(3) == mistakes[:3]


def test_images_in_a_folder_by_the_command_line(of_colours, coloured, tmp_path, capsys):
    run, _ = of_colours
    out = tmp_path / "classifier"
    assert main(["classify", str(run), "-o", str(out), "--device", "cpu"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("accuracy ")
    assert printed[1].endswith("too few held-out images to calibrate the probabilities")
    assert read_card(out)["classifier"]["temperature"] is None
    assert printed[0].endswith("18 held-out images of 3 classes, 72 for training")
    assert printed[2] == f"written to {out}: card.json, encoder.safetensors, head.safetensors, report.html"
    assert "Confusion matrix" in (out / "report.html").read_text()
    table = tmp_path / "table.csv"
    (tmp_path / "bad.png").write_bytes(b"junk")
    words = [str(coloured / "red"), str(coloured / "blue/2.png"), str(tmp_path / "bad.png"), "-o", str(table)]
    assert main(["predict", str(out), *words, "--top", "2", "--all", "--device", "cpu"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{table}: 31 images, ")
    assert "1 file could not be read: bad.png (not an image)" in printed.err
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["file"] for row in rows] == [
        *map(str, sorted((coloured / "red").iterdir())),
        str(coloured / "blue/2.png"),
    ]
    found = hs.load(out, "cpu").predict([row["file"] for row in rows])
    assert [row["class"] for row in rows] == found.labels
    assert found.labels.count("red") > 25
    for row, wanted in zip(rows, found.probabilities, strict=True):
        assert [float(row[f"probability of {name}"]) for name in found.classes] == pytest.approx(
            wanted.tolist(), abs=1e-5
        )
        best, second = wanted.topk(2).indices.tolist()
        assert (row["class"], row["class_2"]) == (found.classes[best], found.classes[second])
        assert float(row["probability"]) == pytest.approx(float(wanted.max()), abs=1e-5)


def test_a_single_image_to_standard_output(of_colours, coloured, capsys):
    classifier = of_colours[1].folder
    assert main(["predict", str(classifier), str(coloured / "green/1.png"), "--device", "cpu"]) == 0
    printed = capsys.readouterr()
    header, row = printed.out.splitlines()
    assert header == "file,class,probability"
    assert row.startswith(f"{coloured}/green/1.png,green,0.")
    assert printed.err.splitlines()[0].startswith("1 image, ")


def test_parquet_has_the_same_rows_as_csv(of_colours, coloured, tmp_path, monkeypatch, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(predicting, "AT_ONCE", 8)
    monkeypatch.setattr(prediction_files, "ROWS", 20)
    folder = shutil.copytree(coloured / "red", tmp_path / "red")
    for path in sorted(folder.iterdir())[:8]:
        path.write_bytes(b"junk")
    for name in ("a.csv", "a.parquet"):
        words = [folder, coloured / "blue", "-o", tmp_path / name, "--top", "2", "--all", "--device", "cpu"]
        assert main(["predict", *map(str, [of_colours[1].folder, *words])]) == 0
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    found = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert len(found) == 52
    assert parquet.ParquetFile(tmp_path / "a.parquet").num_row_groups == 3
    for ours, theirs in zip(found, rows, strict=True):
        assert {key: f"{x:.6f}" if isinstance(x, float) else x for key, x in ours.items()} == theirs


def test_labels_from_a_table_and_other_data(digits, coloured, tmp_path):
    names = sorted(path.relative_to(coloured) for path in coloured.rglob("*.png"))
    table = tmp_path / "labels.csv"
    table.write_text(
        "path,label\n" + "".join(f"{name},{'warm' if name.parts[0] == 'red' else 'cold'}\n" for name in names)
    )
    found = hs.classify(digits, tmp_path / "out", data=str(coloured), labels=str(table), device="cpu")
    assert found.classes == ("cold", "warm")
    assert hs.load(found.folder, "cpu").predict([coloured / names[0]]).labels[0] in found.classes
    arrays = torch.randint(0, 256, (40, 12, 12), dtype=torch.uint8).numpy(), np.arange(40) % 2
    found = hs.classify(digits, tmp_path / "arrays", data=arrays, device="cpu")
    predicted = hs.load(found.folder, "cpu").predict(found.images.pixels)  # 12 × 12 images are shown alike
    assert predicted.labels == [found.classes[n] for n in found.predicted.tolist()]


def test_fine_tuning_changes_the_encoder_and_keeps_it(of_colours, tmp_path):
    run, linear = of_colours
    before = hs.load_run(run, "cpu").encoder.state_dict()
    found = hs.classify(run, tmp_path / "tuned", head="finetune", epochs=6, device="cpu")
    card, loaded = read_card(found.folder), hs.load(found.folder, "cpu")
    assert card["metrics"] == {}
    assert (card["classifier"]["head"], card["classifier"]["epochs"]) == ("finetune", 6)
    assert not torch.equal(loaded.encoder.state_dict()["features.0.weight"], before["features.0.weight"])
    assert loaded.predict(found.names).labels == [found.classes[n] for n in found.predicted.tolist()]
    assert found.accuracy.top1 > 80
    assert found.chance == pytest.approx(100 * max(Counter(found.truth.tolist()).values()) / len(found.truth))
    again = hs.classify(found.folder, tmp_path / "again", data=read_card(linear.folder)["run"]["config"]["data"])
    assert again.accuracy.top1 > 80  # from an exported folder


def test_models_of_libraries(coloured, tmp_path):
    found = hs.classify("resnet18", tmp_path / "a", data=coloured, pretrained=False, size=32, device="cpu")
    card = read_card(found.folder)
    assert (card["encoder"], card["input"]["size"], card["features"]) == ("torchvision/resnet18", 32, 512)
    assert "run" not in card
    names = {}
    exec("\n".join(card["preprocess"]["torchvision"]), names)
    loaded = hs.load(found.folder, "cpu")
    inputs = torch.stack([names["preprocess"](name) for name in found.names])
    with torch.no_grad():
        torch.testing.assert_close(loaded.encoder(inputs), loaded.encode(found.names), rtol=1e-3, atol=1e-3)
    with pytest.raises(UserError, match="`size` applies to models of libraries"):
        hs.classify(found.folder, tmp_path / "b", data=coloured, size=32)


@with_onnx
def test_onnx_without_hypersphere_gives_the_same_probabilities(of_colours, tmp_path):
    """By the lines of the card, from files to probabilities."""
    folder = shutil.copytree(of_colours[1].folder, tmp_path / "copy")
    assert main(["export", str(folder), "--format", "onnx"]) == 0
    card, files = read_card(folder), of_colours[1].names
    assert card["onnx"]["file"] == "classifier.onnx"
    names = {}
    exec("\n".join(card["preprocess"]["torchvision"]), names)
    images = np.stack([names["preprocess"](file).numpy() for file in files])
    session = onnxruntime.InferenceSession(folder / "classifier.onnx", providers=["CPUExecutionProvider"])
    wanted = hs.load(folder, "cpu").predict(files)
    for batch in (1, 5, len(files)):
        (found,) = session.run([card["onnx"]["output"]], {card["onnx"]["input"]: images[:batch]})
        np.testing.assert_allclose(found, wanted.probabilities[:batch], atol=1e-4)
    assert [card["classifier"]["classes"][n] for n in found.argmax(1)] == wanted.labels
    other = export(folder, tmp_path / "other")
    assert sorted(file.name for file in other.iterdir()) == ["card.json", "encoder.safetensors", "head.safetensors"]
    assert hs.load(other, "cpu").predict(files).labels == wanted.labels
    assert exporting.files_of(other) == ["card.json", "encoder.safetensors", "head.safetensors"]


def test_a_classifier_is_replaced_with_what_was_made_of_it(of_colours, coloured, tmp_path, capsys):
    folder = shutil.copytree(of_colours[1].folder, tmp_path / "copy")
    (folder / "classifier.onnx").touch()
    with pytest.raises(UserError, match="has no labels"):
        hs.classify(of_colours[0], folder, data=coloured / "red", device="cpu")
    assert (folder / "classifier.onnx").exists()
    hs.classify(of_colours[0], folder, device="cpu")
    assert sorted(file.name for file in folder.iterdir()) == ["card.json", "encoder.safetensors", "head.safetensors"]
    (told,) = capsys.readouterr().err.splitlines()
    assert f"removed {folder}/classifier.onnx" in told
    assert f"hypersphere export {folder} --format onnx" in told


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def test_what_is_of_another_kind_is_not_replaced(of_colours, coloured, tmp_path):
    run, found = of_colours
    exported, photos = export(run, tmp_path / "exported"), coloured / "red"
    for make in (hs.classify, export):
        for out, message in (
            (found.folder if make is export else exported, "is an? .*, which would be lost"),
            (photos, "has other files, such as 0.png: choose an empty folder"),
        ):
            before = contents(out)
            with pytest.raises(UserError, match=message):
                make(run, out)
            assert contents(out) == before
    with pytest.raises(UserError, match="is an exported encoder, which would be lost"):
        export(found.folder, exported)
    (tmp_path / "begun").mkdir()  # by an export that was killed
    for name in ("encoder.safetensors", "card.json.part", ".DS_Store"):
        (tmp_path / "begun" / name).touch()
    assert hs.load(export(run, tmp_path / "begun"), "cpu").features == 128


def test_a_changed_head_is_refused(of_colours, tmp_path):
    for name, change, message in (
        (
            "head",
            lambda head: head.write_bytes(head.read_bytes()[:-4] + b"abcd"),
            "is not the file that card.json desc",
        ),
        ("head", lambda head: head.unlink(), "head.safetensors does not exist, but card.json describes it"),
        ("classes", lambda head: change_card(head, classes=["red"]), "does not fit 1 classes and 128 features"),
        ("types", lambda head: change_card(head, classes=[1, 2, 3]), r"classifier.classes\[0\] must be a text, got 1"),
    ):
        folder = shutil.copytree(of_colours[1].folder, tmp_path / name, dirs_exist_ok=True)
        change(folder / "head.safetensors")
        with pytest.raises(UserError, match=message):
            hs.load(folder)


def change_card(head, **changes):
    card = read_card(head.parent)
    card["classifier"] |= changes
    (head.parent / "card.json").write_text(json.dumps(card))


def test_what_a_strangers_card_names_is_not_trusted_by_copying(of_colours, coloured, tmp_path, monkeypatch):
    from hypersphere.util.trust import is_trusted

    folder = shutil.copytree(of_colours[1].folder, tmp_path / "copy")
    assert is_trusted(folder / "card.json")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # now it is somebody else's
    assert not is_trusted(export(folder, tmp_path / "other") / "card.json")
    found = hs.classify(folder, tmp_path / "new", data=coloured, device="cpu")
    assert is_trusted(found.folder / "card.json")
    assert "run" not in read_card(found.folder)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["classify", "nothing"], "nothing does not exist: pass a run's folder, an exported folder, or a model"),
        (["classify", "DIGITS", "--head", "tree"], "--head must be one of linear, finetune, got 'tree'"),
        (["classify", "FOLDER"], "--data is missing: pass labelled images"),
        (["classify", "DIGITS", "--data", "FLAT"], "has no labels, which a classifier needs"),
        (["classify", "DIGITS", "-o", "DIGITS"], "is a run: choose another folder"),
        (["predict", "DIGITS", "FLAT"], "is an encoder without a classifier: make one with hypersphere classify"),
        (["predict", "FOLDER"], "missing argument IMAGES: hypersphere predict CLASSIFIER IMAGES"),
        (["predict", "FOLDER", "FLAT", "--top", "4"], "--top must be from 1 to the number of classes, 3, got 4"),
        (["predict", "FOLDER", "gone.png"], "unknown images 'gone.png' (it is neither a file nor a folder"),
        (["predict", "FOLDER", "FLAT", "-o", "a.xlsx"], "--out a.xlsx must end in .csv or .parquet"),
        (["predict", "FLAT", "FOLDER"], "it comes first, as in hypersphere predict FOLDER FLAT"),
        (["evaluate", "FOLDER"], "is not a run: a classifier, for predict, diagnose and hs.load"),
    ],
)
def test_mistakes_are_told_in_a_line(words, message, digits, of_colours, coloured, capsys):
    places = {"DIGITS": digits, "FOLDER": of_colours[1].folder, "FLAT": coloured / "red"}
    for word, place in places.items():
        message = message.replace(word, str(place))
    assert message in told(capsys, *(places.get(word, word) for word in words))


def broken(folder, *names):
    """Overwrite the images of these classes with junk."""
    for path in (path for name in names for path in (folder / name).iterdir()):
        path.write_bytes(b"junk")


@pytest.mark.parametrize("head", ["linear", "finetune"])
def test_unreadable_images_are_listed_and_not_counted(head, of_colours, coloured, tmp_path, capsys):
    folder, out = shutil.copytree(coloured, tmp_path / "images"), tmp_path / "out"
    first = sorted((folder / "red").iterdir())[:10]
    for path in first:
        path.write_bytes(b"junk")
    broken(folder, "blue")
    found = hs.classify(of_colours[0], out, data=folder, head=head, epochs=1, device="cpu")
    told = capsys.readouterr().err
    assert (len(found.truth) + found.trained_on, len(found.classes)) == (50, 3)  # 20 red and 30 green
    assert read_card(out)["classifier"]["training_images"] == found.trained_on
    assert "no training image of blue can be read, so it is never predicted" in told
    assert "40 files could not be read" in told
    listed = [line.split("\t")[0] for line in (out / "unreadable.tsv").read_text().splitlines()]
    assert listed == sorted(map(str, [*first, *(folder / "blue").iterdir()]))
    hs.classify(of_colours[0], out, data=coloured, device="cpu")
    assert not (out / "unreadable.tsv").exists()


def test_a_classifier_of_one_readable_class_is_refused(of_colours, coloured, tmp_path):
    folder = shutil.copytree(coloured, tmp_path / "images")
    broken(folder, "blue", "red")
    with pytest.raises(UserError, match=r"labelled images of one class only \(48 images cannot be read\)"):
        hs.classify(of_colours[0], tmp_path / "out", data=folder, device="cpu")


def test_a_transfer_reports_unreadable_images(of_colours, coloured, tmp_path, capsys):
    folder = shutil.copytree(coloured, tmp_path / "images")
    broken(folder, "blue")
    found = hs.load_run(of_colours[0], "cpu").measure("knn", transfer=str(folder))
    told = capsys.readouterr().err
    assert found[f"transfer/{str(folder).strip('/')}/sphere"]["images"] == 12
    assert "30 files could not be read" in told
    assert "no training image of blue can be read" in told
