"""Folders as people have them."""

import os
from pathlib import Path

import pytest
import torch

from hypersphere.data.folder import Listing, find_images
from hypersphere.data.unreadable import report_unreadable, unreadable_in
from hypersphere.errors import UserError
from hypersphere.util.text import printable
from tests.folders import list_folder


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_images_of_all_depths_in_the_order_of_names(tmp_path):
    touch(tmp_path, "b.JPG", "a/c.png", "a/x/y/d.jpeg", "notes.txt", ".hidden.png", ".cache/e.png", "a/f")
    assert [str(p.relative_to(tmp_path)) for p in find_images(tmp_path).paths] == ["a/c.png", "a/x/y/d.jpeg", "b.JPG"]
    assert list_folder(tmp_path).labels is None  # b.JPG is in no class


def test_folders_are_classes(tmp_path):
    touch(tmp_path, "cat/1.png", "cat/more/2.png", "dog/1.png")
    found = list_folder(tmp_path)
    assert found.classes == ("cat", "dog")
    assert found.labels.tolist() == [0, 0, 1]
    some = found[torch.tensor([2, 0])]
    assert ([p.parent.name for p in some.paths], some.labels.tolist()) == (["dog", "cat"], [1, 0])
    assert isinstance(some, Listing)


def test_a_loop_of_links_ends_and_a_link_is_followed(tmp_path):
    touch(tmp_path, "real/a/1.png", "else/2.png")
    (tmp_path / "real/a/up").symlink_to(tmp_path / "real")
    (tmp_path / "real/link").symlink_to(tmp_path / "else")
    assert sorted(p.name for p in find_images(tmp_path / "real").paths) == ["1.png", "2.png"]


def test_names_that_are_not_unicode(tmp_path):
    name = os.fsencode(tmp_path) + b"/caf\xe9.png"
    open(name, "wb").close()
    (found,) = find_images(tmp_path).paths
    assert os.fsencode(found) == name
    assert printable(found).endswith("caf�.png")
    printable(found).encode()


def test_mistakes(tmp_path):
    with pytest.raises(UserError, match="folder not found: "):
        find_images(tmp_path / "gone")
    with pytest.raises(UserError, match="no images below"):
        list_folder(tmp_path)


def test_unreadable_files_of_an_earlier_part_stay_listed(tmp_path, capsys):
    listed, odd = tmp_path / "unreadable.tsv", os.fsdecode(b"caf\xe9.jpg")
    report_unreadable({Path("b.jpg"): "vanished", Path(odd): "no image"}, listed)
    assert listed.read_bytes() == b"b.jpg\tvanished\ncaf\xe9.jpg\tno image\n"
    report_unreadable({Path("a.jpg"): "no image", Path("b.jpg"): "no image"}, listed, before=unreadable_in(listed))
    assert listed.read_bytes() == b"a.jpg\tno image\nb.jpg\tno image\ncaf\xe9.jpg\tno image\n"
    assert "3 files could not be read: a.jpg (no image), b.jpg (no image)" in capsys.readouterr().err


def test_folders_are_counted_apart(tmp_path, capsys):
    report_unreadable({"in/b/": "Permission denied"}, tmp_path / "listed.tsv")
    assert "1 folder could not be read: b (Permission denied);" in capsys.readouterr().err
    report_unreadable({"in/a.jpg": "no image", "in/b/": "-", "in/c/": "-"}, tmp_path / "listed.tsv")
    assert "1 file and 2 folders could not be read: a.jpg" in capsys.readouterr().err


def test_names_and_reasons_of_several_lines_are_listed_in_one(tmp_path, capsys):
    listed, odd = tmp_path / "unreadable.tsv", {"a\nb\tc.jpg": "cut\toff\r\nat 3", "back\\new.jpg": "no image"}
    report_unreadable(odd, listed)
    assert listed.read_bytes() == rb"a\nb\tc.jpg" + b"\t" + rb"cut\toff\r\nat 3" + b"\nback\\\\new.jpg\tno image\n"
    assert unreadable_in(listed) == odd
    assert capsys.readouterr().err.count("\n") == 1


def test_images_of_other_kinds_are_counted(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("hypersphere.data.folder.reads_heif", lambda: False)
    for name in ("a.png", "b.AVIF", "c.heic", "d.HEIC", "e.svg", ".f.svg", "notes.txt", "labels.csv"):
        (tmp_path / name).write_bytes(b"x")
    assert [path.name for path in find_images(tmp_path).paths] == ["a.png", "b.AVIF"]
    told = capsys.readouterr().err
    ignored = "ignored images in unsupported formats: 2 .heic, 1 .svg (pip install pillow-heif to read them)"
    assert told == f"hypersphere: {tmp_path}: {ignored}\n"
