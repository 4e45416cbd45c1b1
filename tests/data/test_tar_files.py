"""Images in tar files: found, labelled, read one by one, on disk and behind a URL."""

import http.server
import io
import json
import tarfile
import threading
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

import hypersphere as hs
from hypersphere.data import tar_files
from hypersphere.data.decode import read_image
from hypersphere.data.tar_files import find_shards, list_shards
from hypersphere.data.tar_members import opened
from hypersphere.data.worker_stream import Stream, Wanted
from hypersphere.errors import UserError


def put(archive, name, content):
    about = tarfile.TarInfo(name)
    about.size = len(content)
    archive.addfile(about, io.BytesIO(content))


def picture(n):
    file = io.BytesIO()
    Image.new("RGB", (20, 16), (n, 100, 255 - n)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def folder(tmp_path):
    """Three tar files of twelve images each; the label is in .cls or in .json."""
    for shard in range(3):
        with tarfile.open(tmp_path / f"part-{shard:03}.tar", "w") as archive:
            for n in range(12):
                number = 12 * shard + n
                put(archive, f"s/{number:04}.png", picture(number))
                label = (b"%d" % (n % 2), "cls") if n % 3 else (json.dumps({"label": n % 2}).encode(), "json")
                put(archive, f"s/{number:04}.{label[1]}", label[0])
    return tmp_path


def first_pixels(listing):
    return [int(np.asarray(read_image(opened(name)))[0, 0, 0]) for name in listing.paths]


def test_counting_and_matching_patterns(folder):
    all_three = [str(folder / f"part-{n:03}.tar") for n in range(3)]
    assert find_shards(str(folder / "part-{000..002}.tar")) == all_three
    assert find_shards(str(folder / "part-*.tar")) == all_three
    assert tar_files._expand_ranges("a{1..2}/b{08..10}.tar")[:4] == [
        "a1/b08.tar",
        "a1/b09.tar",
        "a1/b10.tar",
        "a2/b08.tar",
    ]
    with pytest.raises(UserError, match="no tar file matches"):
        find_shards(str(folder / "none-*.tar"))


@pytest.mark.parametrize("name", ["set [v1]/x.tar", "what?.tar", "{1..2}.tar"])
def test_a_path_that_exists_is_no_pattern(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    packed(tmp_path / name, ("a.png", picture(1)))
    packed(tmp_path / "whatx.tar", ("b.png", picture(2)))
    assert first_pixels(list_shards(str(tmp_path / name))) == [1]


def test_numbers_below_a_folder_in_brackets(tmp_path):
    (tmp_path / "set [v1]").mkdir()
    for n in range(2):
        packed(tmp_path / f"set [v1]/{n}.tar", ("a.png", picture(n)))
    assert first_pixels(list_shards(str(tmp_path / "set [v1]/{0..1}.tar"))) == [0, 1]


def test_members_are_read_alone_with_their_labels(folder):
    found = list_shards(str(folder / "part-{000..002}.tar"))
    assert first_pixels(found) == list(range(36))
    assert found.labels.tolist() == [n % 2 for n in range(36)]
    assert first_pixels(found[torch.tensor([30, 7])]) == [30, 7]


def test_no_labels_where_one_has_none(folder):
    with tarfile.open(folder / "more.tar", "w") as archive:
        put(archive, "x.png", picture(1))
    assert list_shards(str(folder / "*.tar")).labels is None


def packed(path, *members, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name, content in members:
            put(archive, name, content)
    return str(path)


@pytest.mark.parametrize("order", [1, -1])
def test_one_image_of_each_sample(tmp_path, order):
    """The one without a further dot, else the first by name, wherever it lies."""
    members = [("a.depth.png", 1), ("a.jpg", 2), ("a.png", 3), ("b.depth.png", 4), ("b.png", 5), ("c.l.png", 6)]
    members += [("c.r.png", 7), ("d/a.PNG", 8)]
    found = list_shards(packed(tmp_path / "a.tar", *[(name, picture(n)) for name, n in members[::order]]))
    assert first_pixels(found)[::order] == [2, 5, 6, 8]


def test_of_a_member_that_comes_twice_the_last_counts(tmp_path):
    """As it does for GNU tar, which unpacks them in this order."""
    path = packed(tmp_path / "a.tar", ("a.png", picture(1)), ("a.cls", b"old"), ("b.png", picture(2)), ("b.cls", b"b"))
    packed(path, ("a.png", picture(9)), ("a.cls", b"new"), mode="a")
    found = list_shards(path)
    assert first_pixels(found) == [9, 2]
    assert [found.classes[n] for n in found.labels.tolist()] == ["new", "b"]


def test_hard_links_are_what_they_link_to(tmp_path):
    """Made by Python's tar of a folder, which writes the content once."""
    (tmp_path / "a.png").write_bytes(picture(7))
    (tmp_path / "a.cls").write_bytes(b"seven")
    for kind in ("png", "cls"):
        (tmp_path / f"b.{kind}").hardlink_to(tmp_path / f"a.{kind}")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in ("a.png", "a.cls", "b.png", "b.cls"):
            archive.add(tmp_path / name, name)
        assert [about.islnk() for about in archive.getmembers()] == [False, False, True, True]
    found = list_shards(str(tmp_path / "a.tar"))
    assert [name.rpartition("::")[2] for name in found.paths] == ["a.png", "b.png"]
    assert first_pixels(found) == [7, 7]
    assert (found.classes, found.labels.tolist()) == (("seven",), [0, 0])


def test_a_label_beside_other_facts(tmp_path):
    facts = ("a.png", picture(1)), ("a.cls", b"3"), ("a.json", b'{"width": 20}')
    assert list_shards(packed(tmp_path / "a.tar", *facts)).classes == ("3",)


def test_damaged_and_empty_files(folder):
    (folder / "junk.tar").write_bytes(b"junk" * 200)
    tarfile.open(folder / "empty.tar", "w").close()
    with pytest.raises(UserError, match=r"junk.tar cannot be read as a tar file"):
        list_shards(str(folder / "junk.tar"))
    with pytest.raises(UserError, match="no images in"):
        list_shards(str(folder / "empty.tar"))
    with pytest.raises(UserError, match=r"gone.tar cannot be read"):
        list_shards(str(folder / "gone.tar"))


def test_a_run_learns_from_tar_files(folder, tmp_path):
    options = {"encoder": "hypersphere/digits", "size": 16, "hidden": 16, "projection": 8, "batch": 8, "epochs": 1}
    where = {"out": tmp_path / "run", "device": "cpu", "progress": False, "knn_every": 1}
    run = hs.pretrain("byol", data=str(folder / "part-{000..002}.tar"), workers=1, **options, **where)
    assert run.step == 30 // 8  # three of each class are held out
    assert "knn" in run.metrics[-1]
    assert hs.load_run(run.path).steps == run.step


def test_behind_a_url(folder):
    pytest.importorskip("aiohttp")  # fsspec's for http
    serve = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = list_shards(f"http://127.0.0.1:{server.server_port}/part-{{000..001}}.tar")
        assert first_pixels(found[torch.tensor([23, 0, 5])]) == [23, 0, 5]
        asked = [[Wanted(n, None) for n in (3, 20)], [Wanted(7, None)]]
        batches = list(
            Stream(found.reader, lambda image, how: np.asarray(image)[:1, :1, 0], side=None, workers=1)(asked)
        )
        assert [batch.pixels.flatten().tolist() for batch in batches] == [[3, 20], [7]]
        server.shutdown()


def test_a_table_names_members(folder, tmp_path):
    """With labels, a split and groups, as for a folder."""
    table, shards = tmp_path / "labels.csv", str(folder / "part-*.tar")
    rows = [f"s/{n:04}.png,{'ab'[n % 2]},{'test' if n < 6 else 'train'},g{n // 2}" for n in range(36)]
    table.write_text("\n".join(["path,label,split,group", *rows]))
    dataset = hs.data.Dataset.resolve(hs.data.DataSpec(shards, labels=str(table)))
    train, test = dataset.split("test")
    assert (len(train), len(test)) == (30, 6)
    assert [train.classes[label] for label in test.labels.tolist()] == ["a", "b"] * 3
    assert len(train.groups.unique()) == 15
    with pytest.raises(UserError, match="has no test set: add a column split in `labels`"):
        hs.data.Dataset.resolve(hs.data.DataSpec(shards)).split("test")
    table.write_text("path,label\nelsewhere.png,a\n")
    with pytest.raises(UserError, match=r"names none of the images, such as s/0000.png: .* in tar files, member names"):
        hs.data.Dataset.resolve(hs.data.DataSpec(shards, labels=str(table))).split("validation")


def test_a_table_needs_members_with_different_names(tmp_path):
    for shard in range(2):
        packed(tmp_path / f"part-{shard}.tar", ("a.png", picture(shard)))
    (tmp_path / "labels.csv").write_text("path,label\na.png,x\n")
    labelled = hs.data.DataSpec(str(tmp_path / "part-*.tar"), labels=str(tmp_path / "labels.csv"))
    with pytest.raises(UserError, match=r"member names that differ, but several tar files have a.png"):
        hs.data.Dataset.resolve(labelled).split("validation")
