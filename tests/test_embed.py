"""Vectors of a folder's images in files, and the images most like others."""

import errno
import json
import os
import re
import shutil
import weakref
from html.parser import HTMLParser

import numpy as np
import pyarrow
import pytest
import safetensors.torch
import torch
import torchvision
from PIL import Image
from pyarrow import parquet

import hypersphere.embed as embedding
from hypersphere import vectors
from hypersphere.cli import main
from hypersphere.diagnostics.embeddings import read_embeddings
from hypersphere.embed import embed
from hypersphere.errors import UserError
from hypersphere.export import export
from hypersphere.gallery import gallery
from hypersphere.loading import Loaded
from hypersphere.neighbours import Found, Neighbour, neighbours
from hypersphere.train import load_checkpoint, save_checkpoint
from hypersphere.vectors import Piece, read_vectors
from tests.pictures import draw, untrained

KINDS = (".parquet", ".npz")
RESNET = {"size": 32, "stem": "imagenet", "encoder": "torchvision/resnet18"}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    return folder, draw(folder, 20)


@pytest.fixture(scope="module")
def run(tmp_path_factory, drawn):
    return untrained(tmp_path_factory.mktemp("runs") / "resnet", drawn[0], **RESNET)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("runs") / "digits", "digits")


@pytest.fixture
def _small_pieces(monkeypatch):
    """Eight images at once, pieces of ten ResNet features."""
    monkeypatch.setattr(embedding, "AT_ONCE", 8)
    monkeypatch.setattr(vectors, "PIECE", 10 * 512 * 4)


def rows(path):
    found = list(read_vectors(path).pieces())
    return [name for piece in found for name in piece.paths], np.concatenate([piece.vectors for piece in found])


def by_hand(run, paths):
    """Torchvision's ResNet-18 with the run's weights, of crops made by PIL."""
    model = torchvision.models.resnet18()
    model.fc = torch.nn.Identity()
    state = load_checkpoint(run / "checkpoint.pt")["method"]
    model.load_state_dict({n.removeprefix("encoder."): x for n, x in state.items() if n.startswith("encoder.")})
    inputs = []
    for path in paths:
        image = Image.open(path).convert("RGB")
        short = min(image.size)
        left, top = (image.width - short) / 2, (image.height - short) / 2
        square = image.resize((37, 37), Image.Resampling.BICUBIC, (left, top, left + short, top + short))
        cropped = np.asarray(square.crop((2, 2, 34, 34)), np.float64) / 255
        inputs.append((cropped - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225])
    with torch.no_grad():
        return model.eval()(torch.tensor(np.stack(inputs)).float().permute(0, 3, 1, 2)).numpy()


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


def test_workers_change_nothing(digits, drawn, tmp_path):
    embed(digits, drawn[0], tmp_path / "one.npz", device="cpu")
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
    assert printed.out == f"{out}: 6 images, 128 numbers each; 9 unreadable\n"
    assert "9 files could not be read: 00-bad.png (no image)" in printed.err
    listed = (tmp_path / "out.unreadable.tsv").read_text().splitlines()
    assert listed == [f"{folder}/0{n}-bad.png\tno image" for n in range(9)]
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
    monkeypatch.setattr(vectors, "PIECE", 3 * 128 * 4)
    made = {"pixels": [], "vectors": []}
    most = {"pixels": 0, "vectors": 0}

    def note(kind, value):
        made[kind].append(weakref.ref(value))
        most[kind] = max(most[kind], sum(one() is not None for one in made[kind]))

    def encode(self, pixels, whole=Loaded.encode_pixels):
        note("pixels", pixels)
        return whole(self, pixels)

    def encoded(*arguments, whole=embedding._encoded):
        for piece in whole(*arguments):
            note("vectors", piece.vectors)
            yield piece

    monkeypatch.setattr(Loaded, "encode_pixels", encode)
    monkeypatch.setattr(embedding, "_encoded", encoded)
    embed(digits, drawn[0], tmp_path / f"out{kind}", device="cpu")
    assert [len(each) for each in made.values()] == [20, 20]
    assert most["pixels"] <= 2  # the last one and the new one
    assert most["vectors"] <= 5  # those of a piece, the last one and the new one


def test_a_long_file_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(vectors, "PIECE", 2**16)
    path = tmp_path / "long.parquet"
    about = {"encoder": "", "weights": "", "preprocess": {}, "cwd": "/"}
    file = vectors.writer(path, ".parquet", 64, about, True)
    for n in range(40):
        file.write(Piece([f"{n}/{m}" for m in range(256)], np.random.default_rng(n).standard_normal((256, 64))))
    file.finish()
    before, most = pyarrow.total_allocated_bytes(), 0
    for piece in read_vectors(path).pieces():
        assert len(piece.paths) <= 256
        most = max(most, pyarrow.total_allocated_bytes() - before)
    assert most < 2**19 < path.stat().st_size / 4


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_are_those_of_a_full_sort(run, drawn, tmp_path, monkeypatch, kind):
    folder, paths = drawn
    (elsewhere,) = draw(tmp_path / "elsewhere", 1, seed=1)
    monkeypatch.chdir(folder.parent)
    embed(run, folder.name, tmp_path / f"out{kind}", device="cpu")  # paths that begin here
    monkeypatch.chdir(tmp_path)
    inside = paths[7]
    found = neighbours(tmp_path / f"out{kind}", [elsewhere.relative_to(tmp_path), inside], count=12, device="cpu")
    vectors = by_hand(run, [*paths, elsewhere]).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors[:-1] @ vectors[[-1, 7]].T
    cosines[7, 1] = -2  # itself
    for column, one in enumerate(found):
        order = np.argsort(-cosines[:, column])[:12]
        assert [neighbour.path for neighbour in one.neighbours] == [paths[n] for n in order]
        np.testing.assert_allclose([n.cosine for n in one.neighbours], cosines[order, column], atol=1e-5)
    assert [one.query for one in found] == [elsewhere.relative_to(tmp_path), inside]
    for count in (1, 3, 99):
        (few,) = neighbours(tmp_path / f"out{kind}", [inside], count=count)
        assert [n.path for n in few.neighbours] == [paths[n] for n in np.argsort(-cosines[:, 1])[: min(count, 19)]]


def test_a_query_in_the_file_needs_neither_the_run_nor_the_image(digits, tmp_path):
    paths, moved = draw(tmp_path / "pictures", 5), shutil.copytree(digits, tmp_path / "moved")
    embed(moved, tmp_path / "pictures", tmp_path / "out.npz", device="cpu")
    wanted = neighbours(tmp_path / "out.npz", [paths[2]])
    assert neighbours(tmp_path / "out.npz", [paths[2]], count=1)[0].neighbours == wanted[0].neighbours[:1]
    shutil.rmtree(moved)
    paths[2].unlink()
    assert neighbours(tmp_path / "out.npz", [paths[2]]) == wanted
    (other,) = draw(tmp_path / "more", 1)
    with pytest.raises(UserError, match=r"moved, which made .*out.npz, is not there: say with `encoder` where it is"):
        neighbours(tmp_path / "out.npz", [other])


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
    with pytest.raises(UserError, match=r"was made by other weights than .*moved has now"):
        neighbours(out, [query], encoder=moved)


def test_one_image_is_a_file_too(digits, tmp_path):
    (path,) = draw(tmp_path / "one", 1)
    embed(digits, tmp_path / "one", tmp_path / "out.parquet", device="cpu")
    assert rows(tmp_path / "out.parquet")[1].shape == (1, 128)
    assert neighbours(tmp_path / "out.parquet", [path])[0].neighbours == []


def told(capsys, *words):
    """What a command that fails says, which is one line."""
    assert main(list(map(str, words))) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1), printed
    return printed.err


def test_mistakes_of_embed_are_told_in_a_line(digits, drawn, tmp_path, capsys):
    out, empty, junk = tmp_path / "out.parquet", tmp_path / "empty", tmp_path / "junk"
    empty.mkdir()
    junk.mkdir()
    (junk / "a.png").write_bytes(b"junk")
    bare = shutil.copytree(digits, tmp_path / "bare")
    (bare / "checkpoint.pt").unlink()
    images = drawn[0]
    for words, message in [
        ((digits, images), "hypersphere embed RUN IMAGES -o FILE.parquet"),
        ((digits, "-o", out), "hypersphere embed RUN IMAGES -o FILE.parquet"),
        (
            (tmp_path / "gone", images, "-o", out),
            "there is no .*gone: give a run's folder, or one that hypersphere export wrote",
        ),
        ((images, images, "-o", out), "neither a run .* nor an exported encoder"),
        ((bare, images, "-o", out), "there is no checkpoint"),
        ((digits, tmp_path / "gone", "-o", out), "gone is no folder"),
        ((digits, empty, "-o", out), "there is no image below .*empty"),
        ((digits, junk, "-o", out), r"none of 1 images could be read, such as .*a.png \(no image\)"),
        ((digits, images, "-o", tmp_path / "out.csv"), "--out .*out.csv must end in .parquet or .npz"),
        ((digits, images, "-o", tmp_path / "gone/out.npz"), "there is no folder .*gone"),
        ((digits, images, "-o", "/proc/out.npz"), "could not write /proc/out.npz"),
        ((digits, images, "-o", "/proc/out.parquet"), "could not write /proc/out.parquet"),
        ((digits, images, "-o", out, "--workers", "-1"), "--workers must be at least 0"),
    ]:
        assert re.search(message, told(capsys, "embed", *words).replace("embedding", ""))
    assert not out.exists()
    assert not (tmp_path / "out.parquet.part").exists()


def test_a_diverged_run_embeds_nothing(digits, drawn, tmp_path):
    broken = shutil.copytree(digits, tmp_path / "broken")
    state = load_checkpoint(broken / "checkpoint.pt")
    state["method"]["encoder.features.0.weight"].fill_(torch.nan)
    save_checkpoint(broken / "checkpoint.pt", state)
    with pytest.raises(UserError, match="features that are no numbers: did the run diverge"):
        embed(broken, drawn[0], tmp_path / "out.npz", device="cpu")
    assert not (tmp_path / "out.npz").exists()


def test_mistakes_of_neighbours_are_told_in_a_line(digits, run, drawn, tmp_path, capsys):
    out, image = tmp_path / "out.npz", drawn[1][0]
    (query,) = draw(tmp_path / "query", 1, seed=1)
    embed(digits, drawn[0], out, device="cpu")
    np.savez(tmp_path / "theirs.npz", vector=np.zeros((3, 4)))
    parquet.write_table(pyarrow.table({"path": ["a"], "vector": [[1.0]]}), tmp_path / "theirs.parquet")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    for words, message in [
        ((out,), "hypersphere neighbours FILE QUERY"),
        ((tmp_path / "gone.npz", image), "there is no file .*gone.npz"),
        ((image, image), "001.png is no file of embeddings"),
        ((tmp_path / "theirs.npz", image), "theirs.npz is no file of embeddings"),
        ((tmp_path / "theirs.parquet", image), "theirs.parquet is no file of embeddings"),
        ((tmp_path / "cut.parquet", image), "cut.parquet is no file of embeddings"),
        ((out, tmp_path / "gone.png"), "there is no file .*gone.png"),
        ((out, out), r"out.npz cannot be read \(no image\)"),
        ((out, image, "--count", "0"), "--count must be at least 1"),
        ((out, query, "--encoder", run), "makes 512 features, the vectors in .* have 128"),
        ((out, image, "--page", tmp_path / "gone/page.html"), "--page .*there is no folder"),
    ]:
        assert re.search(message, told(capsys, "neighbours", *words))


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.open += [tag] * (tag != "meta")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page_has_the_pictures_and_needs_nothing_else(digits, drawn, tmp_path, capsys):
    out, page = tmp_path / "out.npz", tmp_path / "page.html"
    embed(digits, drawn[0], out, device="cpu")
    words = ["neighbours", out, *drawn[1][:2], "--count", 4, "--page", page]
    assert main(list(map(str, words))) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"written to {page}"
    found = Page(page.read_text())
    pictures = [tag for tag in found.tags if tag[1].get("role") == "img"]
    assert len(pictures) == 10
    assert all("url(data:image/png;base64," in tag[1]["style"] for tag in pictures)
    cosine, path = lines[1].split()
    assert cosine in found.texts
    assert path in " ".join(found.texts)
    assert not re.search(r"https?://|src=|href=", page.read_text())


def test_nothing_in_a_name_is_taken_for_markup_and_what_vanished_is_told(tmp_path):
    nasty = tmp_path / "<img src=x onerror=alert(1)>&$title.png"
    Image.new("RGB", (300, 100), "red").save(nasty)
    page = Page(gallery([Found(nasty, [Neighbour(tmp_path / "gone.png", -0.5)])], "<b>"))
    assert "Nearest neighbours in <b>" in page.texts
    assert nasty.name in " ".join(page.texts)
    assert {"img", "b"}.isdisjoint(tag for tag, _ in page.tags)
    assert "cannot be read: vanished" in page.texts
    assert "−0.5000" in page.texts
    (tile,) = [attributes for _, attributes in page.tags if attributes.get("role") == "img"]
    assert "--shape: 0.333333; --column: 0; --row: 0; --side: 144px" in tile["style"]


def test_the_fingerprint_is_of_the_exported_file(digits, tmp_path):
    folder = export(digits, tmp_path / "exported")
    weights = safetensors.torch.load_file(folder / "encoder.safetensors")
    state = load_checkpoint(digits / "checkpoint.pt")["method"]
    assert all(
        torch.equal(weights[n.removeprefix("encoder.")], x) for n, x in state.items() if n.startswith("encoder.")
    )
