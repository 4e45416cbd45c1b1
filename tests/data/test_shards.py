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
from hypersphere.data import shards
from hypersphere.data.decode import read_image
from hypersphere.data.shards import find_shards, list_shards, opened
from hypersphere.data.stream import Stream, Wanted
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
    assert shards._counted("a{1..2}/b{08..10}.tar")[:4] == ["a1/b08.tar", "a1/b09.tar", "a1/b10.tar", "a2/b08.tar"]
    with pytest.raises(UserError, match="no tar file matches"):
        find_shards(str(folder / "none-*.tar"))


def test_members_are_read_alone_with_their_labels(folder):
    found = list_shards(str(folder / "part-{000..002}.tar"))
    assert first_pixels(found) == list(range(36))
    assert found.labels.tolist() == [n % 2 for n in range(36)]
    assert first_pixels(found[torch.tensor([30, 7])]) == [30, 7]


def test_no_labels_where_one_has_none(folder):
    with tarfile.open(folder / "more.tar", "w") as archive:
        put(archive, "x.png", picture(1))
    assert list_shards(str(folder / "*.tar")).labels is None


def test_damaged_and_empty_files(folder):
    (folder / "junk.tar").write_bytes(b"junk" * 200)
    tarfile.open(folder / "empty.tar", "w").close()
    with pytest.raises(UserError, match=r"junk.tar cannot be read as a tar file"):
        list_shards(str(folder / "junk.tar"))
    with pytest.raises(UserError, match="there is no image in"):
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
            Stream(found.paths, lambda image, how: np.asarray(image)[:1, :1, 0], side=None, workers=1)(asked)
        )
        assert [batch.pixels.flatten().tolist() for batch in batches] == [[3, 20], [7]]
        server.shutdown()
