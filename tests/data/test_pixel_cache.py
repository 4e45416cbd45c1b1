"""Decoded images that are kept give the views that files give, wherever they are kept."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from hypersphere.data import pixel_cache
from hypersphere.data.decode import Unreadable
from hypersphere.data.loader import PackedCrops, StreamLoader
from hypersphere.data.pixel_cache import keep_decoded
from hypersphere.errors import UserError
from hypersphere.views import folder_pipeline
from tests.folders import list_folder

CPU = torch.device("cpu")
SIDES = [(40, 30), (25, 60), (33, 33), (64, 48), (90, 20), (31, 47), (50, 50)]
ORDER = [(epoch, [torch.tensor([3, 0, 5, 2]), torch.tensor([6, 1, 4])]) for epoch in range(2)]


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Images of different sizes, one of which cannot be read."""
    monkeypatch.setenv("HYPERSPHERE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "photos"
    folder.mkdir()
    draws = np.random.default_rng(0)
    for number, (width, height) in enumerate(SIDES):
        pixels = draws.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.{'jpg' if number % 2 else 'png'}")
    (folder / "2.png").write_bytes(b"no image")
    return list_folder(folder)


def loader_of(files, cache, workers=0):
    return StreamLoader(files, folder_pipeline(32), 7, CPU, workers, cache=cache)


def views_of(loader):
    return [(batch.views, batch.sample) for batch in loader.training(ORDER, torch.float32)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("cache", ["auto", "memory", "disk"])
def test_what_the_network_sees_is_the_same_to_the_bit(photos, cache, workers, capfd):
    kept, streamed = loader_of(photos, cache, workers), loader_of(photos, "off")
    torch.testing.assert_close(views_of(kept), views_of(streamed), rtol=0, atol=0)
    assert kept.unreadable == streamed.unreadable != {}
    assert isinstance(next(iter(kept.kept.values()))[0], pixel_cache.CachedReader)
    size = 3 * sum(width * height for n, (width, height) in enumerate(SIDES) if n != 2)
    assert f"{size / 1000:.3g} kB" in capfd.readouterr().err


def test_files_are_decoded_once(photos, monkeypatch):
    read = []
    kind, real = type(photos.reader), type(photos.reader).read
    monkeypatch.setattr(kind, "read", lambda self, n, side: read.append(n) or real(self, n, side))
    loader = loader_of(photos, "memory")
    loader.prepare()
    first = len(read)
    views_of(loader)
    views_of(loader)
    assert len(read) == first
    probed = [(epoch, sample) for epoch, samples in ORDER for sample in samples]
    list(replace(loader, images=with_labels(photos)).cropped(probed, torch.float32))
    assert len(read) == first
    list(loader.centers())  # from the files, which are decoded at another size
    assert len(read) > first


def with_labels(files):
    return replace(files, labels=torch.zeros(len(files), dtype=torch.int64), classes=("a",))


def test_the_center_views_do_not_change(photos):
    for kept, streamed in zip(*(loader_of(photos, cache).centers() for cache in ("memory", "off")), strict=True):
        torch.testing.assert_close(kept, streamed, rtol=0, atol=0)


def test_a_later_run_finds_the_images_on_disk(photos, monkeypatch):
    wanted = views_of(loader_of(photos, "disk"))
    monkeypatch.setattr(type(photos.reader), "read", lambda *_: pytest.fail("a file was decoded again"))
    torch.testing.assert_close(views_of(loader_of(photos, "disk")), wanted, rtol=0, atol=0)
    torch.testing.assert_close(views_of(loader_of(photos, "auto")), wanted, rtol=0, atol=0)


def test_changed_files_and_other_sides_are_decoded_again(photos):
    keys = {pixel_cache._key(photos.reader, side) for side in (100, 200)}
    Image.new("RGB", (20, 20)).save(photos.paths[2])
    keys.add(pixel_cache._key(photos.reader, 100))
    keys.add(pixel_cache._key(replace(photos, white=4095).reader, 100))
    assert len(keys) == 4
    assert not loader_of(photos, "disk").unreadable


@pytest.mark.parametrize("damage", ["cut", "no tables", "other tables"])
def test_damaged_files_on_disk_are_written_again(photos, tmp_path, damage):
    wanted = views_of(loader_of(photos, "disk"))
    (pixels,), (tables,) = (list((tmp_path / "cache").glob(f"*.{kind}")) for kind in ("pixels", "npz"))
    if damage == "cut":
        os.truncate(pixels, 100)
    else:
        tables.unlink() if damage == "no tables" else tables.write_bytes(b"nothing")
    torch.testing.assert_close(views_of(loader_of(photos, "disk")), wanted, rtol=0, atol=0)


def test_a_copy_in_another_process_maps_the_same_memory(photos):
    cached, on_gpu = keep_decoded(photos.reader, 100, "memory", CPU, workers=0)
    assert not on_gpu
    copied = pickle.loads(pickle.dumps(cached))
    assert torch.equal(copied.read(0, None), photos.reader.read(0, 100))
    with pytest.raises(Unreadable, match="not an image"):
        copied.read(2, None)
    sent = pickle.dumps(cached)
    code = "import pickle, sys; print(int(pickle.load(sys.stdin.buffer).read(0, None).sum()))"
    found = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=True).stdout
    assert int(found) == int(cached.read(0, None).sum())


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no files without a name")
def test_memory_is_free_when_the_reader_is_gone(photos):
    cached, _ = keep_decoded(photos.reader, 100, "memory", CPU, workers=0)
    path = cached.path
    assert os.path.exists(path)
    del cached
    assert not os.path.exists(path)


def test_a_place_without_room_is_refused_and_auto_streams(photos, monkeypatch, capfd):
    monkeypatch.setattr(pixel_cache, "free_memory", lambda device: 1000)
    with pytest.raises(UserError, match=r"^`cache` memory has too little room: .* 1 kB are free"):
        keep_decoded(photos.reader, 100, "memory", CPU, workers=0)
    monkeypatch.setattr(pixel_cache.shutil, "disk_usage", lambda path: type("", (), {"free": 1000}))
    with pytest.raises(UserError, match=r"^`cache` disk has too little room"):
        keep_decoded(photos.reader, 100, "disk", CPU, workers=0)
    assert keep_decoded(photos.reader, 100, "auto", CPU, workers=0) == (None, False)
    with pytest.raises(UserError, match=r"^`cache` gpu needs a GPU"):
        keep_decoded(photos.reader, 100, "gpu", CPU, workers=0)


def test_images_that_turn_out_too_large_are_streamed(photos, monkeypatch, capfd):
    monkeypatch.setattr(pixel_cache, "_estimate", lambda *_: 1.0)
    monkeypatch.setattr(pixel_cache, "free_memory", lambda device: 5000)
    wanted = views_of(loader_of(photos, "off"))
    torch.testing.assert_close(views_of(loader_of(photos, "auto")), wanted, rtol=0, atol=0)
    assert "decoded images are not kept (they take more than 4.5 kB)" in capfd.readouterr().err


def in_gpu_memory(files):
    """A loader as on a GPU, with the images on the CPU, where the reference makes the views."""
    loader = loader_of(files, "memory")
    loader.prepare()
    (side,) = loader.kept
    reader, _ = loader.kept[side]
    loader.kept[side] = (reader, reader.on_gpu(CPU))
    assert isinstance(loader.crops(loader.pipeline, torch.float32), PackedCrops)
    return loader


def test_views_of_images_in_gpu_memory_are_those_of_files_up_to_rounding(photos):
    found, wanted = views_of(in_gpu_memory(photos)), views_of(loader_of(photos, "off"))
    for (views, sample), (others, same) in zip(found, wanted, strict=True):
        assert torch.equal(sample, same)  # also where an unreadable image is replaced
        for view, other in zip(views, others, strict=True):
            apart = (view - other).abs()
            assert apart.mean() < 0.02  # crops of files are rounded to bytes
    assert in_gpu_memory(photos).crops(folder_pipeline(32), torch.float32).reasons == {2: "not an image"}


def test_a_batch_of_unreadable_images_takes_the_next_ones(photos):
    for name in ("3.jpg", "4.png"):
        (photos.paths[0].parent / name).write_bytes(b"no image")
    order = [(0, [torch.tensor([2, 3])])]
    both = [list(loader.training(order, torch.float32)) for loader in (in_gpu_memory(photos), loader_of(photos, "off"))]
    assert [batch.sample.tolist() for loader in both for batch in loader] == [[5, 5], [5, 5]]
