"""The images most like others, and their page."""

import re
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from hypersphere.cli import main
from hypersphere.errors import UserError
from hypersphere.inference.embed_to_file import embed
from hypersphere.inference.neighbours import Found, Neighbour, neighbours
from hypersphere.report.gallery import NEIGHBOURS, neighbour_sections, page_of, write_sections
from tests.inference.hands import KINDS, by_hand, rows, told
from tests.pictures import draw
from tests.tree import Tree


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


def test_images_in_tar_files_are_as_those_in_a_folder(run, drawn, tmp_path, monkeypatch):
    """And are found by what names them, in the file and beside it, wherever one is; their page has the pictures."""
    (tmp_path / "tars").mkdir()
    for part in range(2):
        with tarfile.open(tmp_path / f"tars/{part}.tar", "w") as archive:
            for path in drawn[1][part::2]:
                archive.add(path, path.name)
    monkeypatch.chdir(tmp_path / "tars")
    assert embed(run, "{0..1}.tar", tmp_path / "out.npz", device="cpu") == (20, 512, {})
    monkeypatch.chdir(tmp_path)
    names, numbers = rows(tmp_path / "out.npz")
    paths = [next(path for path in drawn[1] if name.endswith(f"::{path.name}")) for name in names]
    np.testing.assert_allclose(numbers, by_hand(run, paths), atol=1e-5)
    inside, like = f"tars/{names[3]}", paths[3]
    (one,), (same,) = (neighbours(tmp_path / "out.npz", [query], count=4) for query in (inside, like))
    assert same.neighbours[0].path == str(tmp_path / inside)
    assert same.neighbours[0].cosine == pytest.approx(1)
    assert [n.path for n in one.neighbours[:3]] == [n.path for n in same.neighbours[1:]]
    page = tmp_path / "page.html"
    write_sections(page, "Nearest", NEIGHBOURS, neighbour_sections([one]), str(tmp_path / "out.npz"))
    assert page.read_text().count("url(data:image/png;base64,") == 5
    embed(run, "tars/0.tar", tmp_path / "half.npz", device="cpu")
    (other,) = neighbours(tmp_path / "half.npz", [f"tars/{names[-1]}"], count=9)  # of the other tar: it is encoded
    assert [n.path for n in other.neighbours] == [
        n.path for n in neighbours(tmp_path / "half.npz", [paths[-1]], count=9)[0].neighbours
    ]
    (tmp_path / "tars/1.tar").unlink()
    assert "file not found" in page_of("Nearest", NEIGHBOURS, neighbour_sections([other]))
    with pytest.raises(UserError, match=r"1\.tar::.* cannot be read \(file not found\)"):
        neighbours(tmp_path / "half.npz", [f"tars/{names[-1]}"])


def test_a_query_in_the_file_needs_neither_the_run_nor_the_image(digits, tmp_path):
    paths, moved = draw(tmp_path / "pictures", 5), shutil.copytree(digits, tmp_path / "moved")
    embed(moved, tmp_path / "pictures", tmp_path / "out.npz", device="cpu")
    wanted = neighbours(tmp_path / "out.npz", [paths[2]])
    assert neighbours(tmp_path / "out.npz", [paths[2]], count=1)[0].neighbours == wanted[0].neighbours[:1]
    shutil.rmtree(moved)
    paths[2].unlink()
    assert neighbours(tmp_path / "out.npz", [paths[2]]) == wanted
    (other,) = draw(tmp_path / "more", 1)
    with pytest.raises(
        UserError, match=r"moved, which made .*out.npz, was not found. If it has moved, pass `encoder` NEW_LOCATION"
    ):
        neighbours(tmp_path / "out.npz", [other])


def test_mistakes_of_neighbours_are_told_in_a_line(digits, run, drawn, tmp_path, capsys):
    out, image = tmp_path / "out.npz", drawn[1][0]
    (query,) = draw(tmp_path / "query", 1, seed=1)
    embed(digits, drawn[0], out, device="cpu")
    np.savez(tmp_path / "theirs.npz", vector=np.zeros((3, 4)))
    parquet.write_table(pyarrow.table({"path": ["a"], "vector": [[1.0]]}), tmp_path / "theirs.parquet")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    embed(digits, drawn[0], tmp_path / "out.parquet", device="cpu")
    for kind, place in ((".npz", 6000), (".parquet", 4)):  # among the vectors; where those begin
        whole = (tmp_path / f"out{kind}").read_bytes()
        (tmp_path / f"damaged{kind}").write_bytes(whole[:place] + b"\xff" * 30 + whole[place + 30 :])
    for words, message in [
        ((out,), r"hypersphere neighbours FILE \[QUERY"),
        ((tmp_path / "gone.npz", image), "gone.npz does not exist"),
        ((image, image), "001.png was not written by hypersphere embed: expected .parquet or .npz"),
        ((tmp_path / "theirs.npz", image), "theirs.npz was not written by hypersphere embed"),
        ((tmp_path / "theirs.parquet", image), "theirs.parquet was not written by hypersphere embed"),
        ((tmp_path / "cut.parquet", image), "cut.parquet was not written by hypersphere embed"),
        ((tmp_path / "damaged.npz", image), r"damaged.npz is damaged, or no .npz file \(Bad CRC-32 .*\)"),
        ((tmp_path / "damaged.parquet", image), r"damaged.parquet is damaged, or no .parquet file \(.*\)"),
        ((out, tmp_path / "gone.png"), "gone.png does not exist"),
        ((out, out), r"out.npz cannot be read \(not an image\)"),
        ((out, image, "--count", "0"), "--count must be an integer of at least 1, got 0"),
        ((out, image, "--encoder", tmp_path / "nowhere"), "--encoder .*nowhere does not exist"),
        ((out, image, "--encoder", run), "has 512 features"),  # though the image is in the file
        ((out, query, "--encoder", run), "has 512 features, but vectors in .* have 128"),
        ((out, image, "--page", tmp_path / "gone/page.html"), "--page .*there is no folder"),
    ]:
        assert re.search(message, told(capsys, "neighbours", *words))


def test_the_page_has_the_pictures_and_needs_nothing_else(digits, drawn, tmp_path, capsys):
    out, page = tmp_path / "out.npz", tmp_path / "page.html"
    embed(digits, drawn[0], out, device="cpu")
    words = ["neighbours", out, *drawn[1][:2], "--count", 4, "--page", page]
    assert main(list(map(str, words))) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"written to {page}: open it in a browser"
    found = Tree(page.read_text())
    pictures = [tag for tag in found.elements if tag[1].get("role") == "img"]
    assert len(pictures) == 10
    assert all("url(data:image/png;base64," in tag[1]["style"] for tag in pictures)
    cosine, path = lines[1].split()
    assert cosine in found.said()
    assert path in " ".join(found.said())
    assert {tag[1]["href"] for tag in found.elements if tag[0] == "a"} >= {drawn[1][0].as_uri(), Path(path).as_uri()}
    assert not re.search(r"https?://|src=|<link", page.read_text())


def test_nothing_in_a_name_is_taken_for_markup_and_what_vanished_is_told(tmp_path):
    nasty = tmp_path / "<img src=x onerror=alert(1)>&$title.png"
    Image.new("RGB", (300, 100), "red").save(nasty)
    found = [Found(nasty, [Neighbour(tmp_path / "gone.png", -0.5)])]
    page = Tree(page_of("Nearest neighbours in <b>", NEIGHBOURS, neighbour_sections(found)))
    assert "Nearest neighbours in <b>" in page.said()
    assert nasty.name in " ".join(page.said())
    assert {"img", "b"}.isdisjoint(tag for tag, _ in page.elements)
    assert "cannot be read: file not found" in page.said()
    assert "−0.5000" in page.said()
    (tile,) = [attributes for _, attributes in page.elements if attributes.get("role") == "img"]
    assert "--shape: 0.333333; --column: 0; --row: 0; --side: 144px" in tile["style"]
