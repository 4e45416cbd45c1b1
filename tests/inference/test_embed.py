"""Vectors of a folder's images in files."""

import csv
import errno
import json
import os
import re
import shutil
import time
import weakref

import numpy as np
import pyarrow
import pytest
import safetensors.torch
import torch
from pyarrow import parquet

import hypersphere as hs
import hypersphere.inference.embed_to_file as embedding
from hypersphere.cli import main
from hypersphere.errors import UserError
from hypersphere.inference import embedding_files, library_models
from hypersphere.inference.embed_to_file import embed
from hypersphere.inference.embedding_files import VectorBatch, read_embeddings, read_vectors
from hypersphere.inference.exporting import export
from hypersphere.inference.loading import Loaded
from hypersphere.inference.neighbours import neighbours
from hypersphere.nn.libraries import build_model
from hypersphere.train import load_checkpoint, save_checkpoint
from tests.inference.hands import KINDS, by_hand, rows, told
from tests.pictures import draw


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize("kind", KINDS)
def test_every_image_has_the_vector_that_is_computed_by_hand(run, drawn, tmp_path, kind):
    folder, paths = drawn
    out = tmp_path / f"out{kind}"
    found = embed(run, folder, out, device="cpu")
    assert found == (20, 512, {})
    names, numbers = rows(out)
    assert names == [str(path) for path in paths]
    assert numbers.dtype == np.float32
    np.testing.assert_allclose(numbers, by_hand(run, paths), atol=1e-5)
    assert os.listdir(tmp_path) == [out.name]
    seen = read_embeddings(out)  # what `diagnose` makes of it
    assert (seen.rows, seen.dimensions) == (20, 512)


@pytest.mark.usefixtures("_small_pieces")
def test_what_others_see_in_the_files(run, drawn, tmp_path):
    embed(run, drawn[0], tmp_path / "a.parquet", device="cpu")
    file = parquet.ParquetFile(tmp_path / "a.parquet")
    assert file.schema_arrow.names == ["path", "vector"]
    assert file.schema_arrow.types == [pyarrow.string(), pyarrow.list_(pyarrow.float32(), 512)]
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [16, 4]  # as they came
    about = json.loads(file.schema_arrow.metadata[b"hypersphere"])
    assert about["encoder"] == str(run)
    assert about["preprocess"]["mean"] == [0.485, 0.456, 0.406]
    embed(run, drawn[0], tmp_path / "a.npz", device="cpu")
    arrays = np.load(tmp_path / "a.npz", allow_pickle=False)
    table = file.read().to_pydict()
    assert arrays["path"].tolist() == table["path"]
    assert np.array_equal(arrays["vector"], np.array(table["vector"], np.float32))
    assert json.loads(str(arrays["hypersphere"])) == about


@pytest.fixture
def split(tmp_path):
    """Images of two classes in folders of a split, and without."""
    for part in ("train", "val"):
        for name in ("cat", "dog, or wolf"):
            draw(tmp_path / "split" / part / name, 2, seed=len(part + name))
    return tmp_path / "split"


def test_labels_are_in_every_kind_of_file(digits, split, tmp_path):
    paths = sorted(str(path) for path in split.rglob("*.*g"))
    wanted = ["cat" if "/cat/" in path else "dog, or wolf" for path in paths]
    for kind in (".npz", ".parquet", ".csv"):
        embed(digits, split, tmp_path / f"out{kind}", device="cpu")
    arrays, table = np.load(tmp_path / "out.npz"), parquet.read_table(tmp_path / "out.parquet").to_pydict()
    with open(tmp_path / "out.csv", newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["file", "label", *(f"x{n}" for n in range(128))]
    assert arrays["path"].tolist() == table["path"] == [line[0] for line in lines]
    assert sorted(zip(table["path"], table["label"], strict=True)) == sorted(zip(paths, wanted, strict=True))
    assert arrays["label"].tolist() == table["label"] == [line[1] for line in lines]
    assert np.array_equal(np.array([line[2:] for line in lines], np.float32), arrays["vector"])  # exactly
    for kind in ("npz", "csv"):
        found = read_embeddings(tmp_path / f"out.{kind}")
        assert (found.rows, found.dimensions) == (8, 128)
        assert np.array_equal(np.concatenate(list(found.pieces())), arrays["vector"])
    assert len(rows(tmp_path / "out.parquet")[0]) == 8
    embed(digits, split / "train/cat", tmp_path / "alone.npz", device="cpu")
    assert sorted(np.load(tmp_path / "alone.npz")) == ["hypersphere", "path", "vector"]


def test_a_single_image(digits, drawn, tmp_path, capsys):
    image, out = drawn[1][3], tmp_path / "one.npz"
    assert main(["embed", str(digits), str(image), "-o", str(out), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: 1 image, 128 numbers each")
    assert rows(out)[0] == [str(image)]
    torch.testing.assert_close(torch.tensor(rows(out)[1]), hs.load(digits, "cpu").encode([image]))
    assert main(["embed", str(digits), str(image), "-o", str(tmp_path / "one.csv"), "--device", "cpu"]) == 0
    assert "neighbours" not in capsys.readouterr().out  # which cannot search it
    assert "does not say how it was made: embed the images into .parquet or .npz" in told(
        capsys, "neighbours", tmp_path / "one.csv", image
    )


def test_workers_change_nothing(digits, drawn, tmp_path, monkeypatch):
    """Nor does the time."""
    embed(digits, drawn[0], tmp_path / "one.npz", device="cpu")
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 1e6)
    embed(digits, drawn[0], tmp_path / "two.npz", device="cpu", workers=2)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_unreadable_files_are_left_out_and_listed(digits, tmp_path, capsys, monkeypatch, kind):
    monkeypatch.setattr(embedding, "AT_ONCE", 4)
    folder, out = tmp_path / "pictures", tmp_path / f"out{kind}"
    good = draw(folder, 6)
    for n in range(9):  # whole batches of them
        (folder / f"0{n}-bad.png").write_bytes(b"junk")
    assert main(["embed", str(digits), str(folder), "-o", str(out), "--device", "cpu"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == f"{out}: 6 images, 128 numbers each; 9 unreadable"
    assert "9 files could not be read: 00-bad.png (not an image)" in printed.err
    listed = (tmp_path / "out.unreadable.tsv").read_text().splitlines()
    assert listed == [f"{folder}/0{n}-bad.png\tnot an image" for n in range(9)]
    assert rows(out)[0] == [str(path) for path in good]
    for path in folder.glob("*-bad.png"):
        path.unlink()
    embed(digits, folder, out, device="cpu")
    assert sorted(os.listdir(tmp_path)) == [out.name, "pictures"]  # the list of before is gone


@pytest.mark.parametrize("kind", KINDS)
def test_names_that_are_no_text_survive(digits, tmp_path, kind, capsys):
    folder, out = tmp_path / "pictures", tmp_path / f"out{kind}"
    draw(folder, 3)
    odd = os.fsencode(folder) + b"/caf\xe9.png"
    shutil.copy(folder / "001.png", odd)
    (folder / "été �.png").write_bytes((folder / "002.png").read_bytes())
    embed(digits, folder, out, device="cpu")
    names, _ = rows(out)
    assert [os.fsencode(name) for name in names] == sorted(os.fsencode(p) for p in folder.rglob("*.*g"))
    assert odd in [os.fsencode(name) for name in names]
    if kind == ".parquet":
        table = parquet.read_table(out)
        assert f"{folder}/caf�.png" in table["path"].to_pylist()
        assert [raw for raw in table["path_bytes"].to_pylist() if raw] == [odd]
    assert main(["neighbours", str(out), str(folder / "001.png"), "--count", "1", "--device", "cpu"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"  1.0000  {folder}/caf�.png"


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_what_ends_early_leaves_nothing_and_the_file_before(run, drawn, tmp_path, monkeypatch, kind, error):
    out = tmp_path / f"out{kind}"
    out.write_text("as it was")
    calls = []

    def encode(self, pixels, whole=Loaded.encode_pixels):
        calls.append(pixels)
        if len(calls) == 3:
            raise error
        return whole(self, pixels)

    monkeypatch.setattr(Loaded, "encode_pixels", encode)
    full = isinstance(error, OSError)
    with pytest.raises(
        UserError if full else KeyboardInterrupt, match="could not write .*: No space" if full else None
    ):
        embed(run, drawn[0], out, device="cpu")
    assert os.listdir(tmp_path) == [out.name]
    assert out.read_text() == "as it was"


@pytest.mark.parametrize("kind", KINDS)
def test_neither_images_nor_vectors_pile_up(digits, drawn, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(embedding, "AT_ONCE", 1)
    monkeypatch.setattr(embedding_files, "PIECE", 3 * 128 * 4)
    made = {"pixels": [], "vectors": []}
    most = {"pixels": 0, "vectors": 0}

    def note(kind, value):
        made[kind].append(weakref.ref(value))
        most[kind] = max(most[kind], sum(one() is not None for one in made[kind]))

    def encode(self, pixels, whole=Loaded.encode_pixels):
        note("pixels", pixels)
        return whole(self, pixels)

    def encoded(*arguments, whole=embedding.encoded):
        for piece in whole(*arguments):
            note("vectors", piece.vectors)
            yield piece

    monkeypatch.setattr(Loaded, "encode_pixels", encode)
    monkeypatch.setattr(embedding, "encoded", encoded)
    embed(digits, drawn[0], tmp_path / f"out{kind}", device="cpu")
    assert [len(each) for each in made.values()] == [20, 20]
    assert most["pixels"] <= 2  # the last one and the new one
    assert most["vectors"] <= 5  # those of a piece, the last one and the new one


def test_a_long_file_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(embedding_files, "PIECE", 2**16)
    path = tmp_path / "long.parquet"
    about = {"encoder": "", "weights": "", "preprocess": {}, "cwd": "/"}
    with embedding_files.writer(path, ".parquet", 64, about, True) as write:
        for n in range(40):
            write(VectorBatch([f"{n}/{m}" for m in range(256)], np.random.default_rng(n).standard_normal((256, 64))))
    before, most = pyarrow.total_allocated_bytes(), 0
    for piece in read_vectors(path).pieces():
        assert len(piece.paths) <= 256
        most = max(most, pyarrow.total_allocated_bytes() - before)
    assert most < 2**19 < path.stat().st_size / 4


def test_a_run_that_was_moved_or_exported_is_known_by_its_weights(digits, drawn, tmp_path):
    (query,) = draw(tmp_path / "query", 1, seed=1)
    out, moved = tmp_path / "out.parquet", shutil.copytree(digits, tmp_path / "moved")
    embed(digits, drawn[0], out, device="cpu")
    wanted = neighbours(out, [query], device="cpu")
    assert neighbours(out, [query], encoder=moved, device="cpu") == wanted
    assert neighbours(out, [query], encoder=export(digits, tmp_path / "exported"), device="cpu") == wanted
    state = load_checkpoint(moved / "checkpoint.pt")
    state["method"]["encoder.features.0.weight"] += 1e-3
    save_checkpoint(moved / "checkpoint.pt", state)
    with pytest.raises(UserError, match=r"was made with other weights than .*moved has now"):
        neighbours(out, [query], encoder=moved)


def test_one_image_is_a_file_too(digits, tmp_path):
    (path,) = draw(tmp_path / "one", 1)
    embed(digits, tmp_path / "one", tmp_path / "out.parquet", device="cpu")
    assert rows(tmp_path / "out.parquet")[1].shape == (1, 128)
    assert neighbours(tmp_path / "out.parquet", [path])[0].neighbours == []


def test_mistakes_of_embed_are_told_in_a_line(digits, drawn, tmp_path, capsys):
    out, empty, junk = tmp_path / "out.parquet", tmp_path / "empty", tmp_path / "junk"
    empty.mkdir()
    junk.mkdir()
    (junk / "a.png").write_bytes(b"junk")
    bare = shutil.copytree(digits, tmp_path / "bare")
    (bare / "checkpoint.pt").unlink()
    images = drawn[0]
    for words, message in [
        ((digits, images), "missing option --out: hypersphere embed RUN IMAGES -o FILE$"),
        ((digits, "-o", out), "missing argument IMAGES: hypersphere embed RUN IMAGES -o FILE$"),
        (
            (tmp_path / "gone", images, "-o", out),
            "gone does not exist: expected the folder of a run, one that hypersphere export wrote, or a model such",
        ),
        ((images, images, "-o", out), "neither a run .* nor an exported encoder"),
        ((bare, images, "-o", out), "there is no checkpoint"),
        ((digits, tmp_path / "gone", "-o", out), "folder not found: .*gone"),
        ((digits, empty, "-o", out), "no images below .*empty"),
        ((digits, junk, "-o", out), r"none of 1 images could be read, such as .*a.png \(not an image\)"),
        ((digits, images, "-o", tmp_path / "out.txt"), "--out .*out.txt must end in .parquet, .npz or .csv"),
        ((digits, images, "-o", tmp_path / "gone/out.npz"), "there is no folder .*gone"),
        ((digits, images, "-o", "/proc/out.npz"), "could not write /proc/out.npz"),
        ((digits, images, "-o", "/proc/out.parquet"), "could not write /proc/out.parquet"),
        ((digits, images, "-o", out, "--workers", "-1"), "--workers must be between 0 and 1024"),
    ]:
        assert re.search(message, told(capsys, "embed", *words).replace("embedding", ""))
    assert not out.exists()
    assert not (tmp_path / "out.parquet.part").exists()


def test_a_diverged_run_embeds_nothing(digits, drawn, tmp_path):
    broken = shutil.copytree(digits, tmp_path / "broken")
    state = load_checkpoint(broken / "checkpoint.pt")
    state["method"]["encoder.features.0.weight"].fill_(torch.nan)
    save_checkpoint(broken / "checkpoint.pt", state)
    with pytest.raises(UserError, match="produces features with NaN or infinity: check whether the run diverged"):
        embed(broken, drawn[0], tmp_path / "out.npz", device="cpu")
    assert not (tmp_path / "out.npz").exists()


def test_the_fingerprint_is_of_the_exported_file(digits, tmp_path):
    folder = export(digits, tmp_path / "exported")
    weights = safetensors.torch.load_file(folder / "encoder.safetensors")
    state = load_checkpoint(digits / "checkpoint.pt")["method"]
    assert all(
        torch.equal(weights[n.removeprefix("encoder.")], x) for n, x in state.items() if n.startswith("encoder.")
    )


def test_a_model_of_a_library_needs_no_training(drawn, tmp_path, monkeypatch):
    """Its weights, which a download would give, are random here; a query outside the file needs the model again."""

    def published(name):
        torch.manual_seed(0)
        return build_model(name)

    monkeypatch.setattr(library_models, "pretrained_model", published)
    out, (folder, files) = tmp_path / "out.npz", drawn
    assert embed("timm/test_vit", folder, out).images == len(files)
    loaded = hs.load("timm/test_vit", "cpu")
    made = read_vectors(out)
    assert (made.about["encoder"], made.dimensions) == ("timm/test_vit", loaded.features)
    assert repr(loaded).startswith("<encoder VisionTransformer, ")
    assert len(repr(loaded)) < 200
    query = shutil.copy(files[3], tmp_path / "query.png")
    (found,) = neighbours(out, [query], count=1, device="cpu")
    assert os.path.samefile(found.neighbours[0].path, files[3])
