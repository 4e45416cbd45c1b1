"""Decoding in worker processes: order, holes, and files that change under way."""

import multiprocessing
import os
import signal

import numpy as np
import pytest
import torch
from PIL import Image

from hypersphere.data.worker_stream import FileReader, Stream, Wanted
from hypersphere.errors import UserError
from hypersphere.util.console import notify_once


def brightness(image, how):
    return np.asarray(image)[:2, :2, 0] + how


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"{n}.png" for n in range(12)]
    for n, path in enumerate(paths):
        Image.new("RGB", (4, 4), (n, 0, 0)).save(path)
    return paths


def asked(*samples, how=100):
    return [Wanted(sample, np.uint8(how)) for sample in samples]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_in_order_epoch_after_epoch(files, workers):
    stream = Stream(FileReader(files), brightness, side=None, workers=workers)
    for batches in ([asked(3, 1), asked(2, 0), asked(5, 4)], [asked(11), asked(10), asked(9), asked(8)], [asked(7, 6)]):
        found = list(stream(iter(batches)))
        assert [d.sample.tolist() for d in found] == [[w.sample for w in batch] for batch in batches]
        assert [d.pixels[:, 0, 0].tolist() for d in found] == [[w.sample + 100 for w in batch] for batch in batches]


@pytest.mark.parametrize("workers", [0, 2])
def test_holes_are_filled_and_noted(files, workers):
    files[1].write_bytes(b"junk")
    files[4].unlink()
    stream = Stream(FileReader(files), brightness, side=None, workers=workers)
    (found,) = stream([asked(0, 1, 2, 4)])
    assert found.sample.tolist() == [0, 2, 2, 2]  # whose bytes, and so whose labels, they are
    assert found.pixels[:, 0, 0].tolist() == [100, 102, 102, 102]
    assert stream.unreadable == {files[1]: "not an image", files[4]: "file not found"}
    files[1].write_bytes(files[3].read_bytes())  # mended meanwhile
    (found,) = stream([asked(1)])
    assert found.pixels[0, 0, 0] == 103


def test_a_batch_of_holes_is_filled_with_the_next_files(files):
    for n in (3, 4, 11):
        files[n].unlink()
    stream = Stream(FileReader(files), brightness, side=None, workers=0)
    first, second = stream([asked(3, 11), asked(4)])
    assert (first.sample.tolist(), second.sample.tolist()) == ([5, 0], [5])
    assert first.pixels[:, 0, 0].tolist() == [105, 100]
    assert set(stream.unreadable) == {files[3], files[4], files[11]}
    (again,) = Stream(FileReader(files), brightness, side=None, workers=0)([asked(4)])
    assert again.sample.tolist() == [5]
    for file in files:
        file.unlink(missing_ok=True)
    with pytest.raises(UserError, match=r"none of 12 images could be read, such as .*png \(file not found\)"):
        list(stream([asked(1)]))


def test_batches_are_asked_for_as_they_are_needed(files):
    taken = []

    def batches():
        for n in range(12):
            taken.append(n)
            yield asked(n)

    stream = Stream(FileReader(files), brightness, side=None, workers=1)
    next(stream(batches()))
    assert len(taken) < 12


def test_paths_are_kept_as_bytes(tmp_path):
    paths = [tmp_path / "a", tmp_path / "lång" / "b.png", tmp_path / "c"]
    kept = FileReader(paths)
    assert [kept.name(n) for n in range(len(kept))] == paths


def test_a_long_stretch_of_holes_is_walked_once(tmp_path, monkeypatch):
    paths = [tmp_path / f"{n}.png" for n in range(400)]
    Image.new("RGB", (2, 2)).save(paths[-1])
    stream = Stream(FileReader(paths), brightness, side=None, workers=0)
    read, kind = [], type(stream._samples)
    one = kind.__getitem__
    monkeypatch.setattr(kind, "__getitem__", lambda self, wanted: (read.append(wanted), one(self, wanted))[1])
    found = list(stream(asked(*range(n, n + 10)) for n in range(0, 390, 10)))
    assert {sample for batch in found for sample in batch.sample.tolist()} == {399}
    assert len(read) < 3 * 400  # by the workers, on the way to a readable one, and that one for each
    monkeypatch.setattr("hypersphere.data.worker_stream.PATIENCE", 20)
    with pytest.raises(UserError, match=r"none of \d+ images could be read"):
        list(Stream(FileReader(paths), brightness, side=None, workers=0)([asked(0)]))


@pytest.mark.parametrize("workers", [0, 1])
def test_no_random_number_is_taken(files, workers):
    """An encoder's dropout draws them: they are the same whether a run was continued or not."""
    before = torch.get_rng_state()
    list(Stream(FileReader(files), brightness, side=None, workers=workers)([asked(0, 1)]))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_workers_go_on_when_all_are_asked_to_stop(files, signum):
    """The parent decides when there is enough."""
    coming = Stream(FileReader(files), brightness, side=None, workers=1)([asked(n) for n in range(12)])
    assert next(coming).sample.tolist() == [0]
    (worker,) = multiprocessing.active_children()
    os.kill(worker.pid, signum)
    assert [decoded.sample.item() for decoded in coming] == list(range(1, 12))
    worker.join(10)
    assert worker.exitcode == 0


def test_a_killed_worker_is_replaced(files, capsys):
    """In order, each image once, and what comes is what would have come."""
    stream = Stream(FileReader(files), brightness, side=None, workers=2)
    coming, found = stream(asked(n, how=n) for n in range(12)), []
    for decoded in coming:
        found.append((decoded.sample.item(), decoded.pixels[0, 0, 0].item()))
        if len(found) in (1, 6):
            os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
    assert found == [(n, 2 * n) for n in range(12)]
    assert "a process that reads images was killed" in capsys.readouterr().err


def end_this_worker(image, how):
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_that_are_killed_again_and_again_end_the_work(files):
    stream = Stream(FileReader(files), end_this_worker, side=None, workers=1)
    with pytest.raises(UserError, match=r"was killed 4 times \(.*\): .* use fewer `workers`"):
        list(stream([asked(0), asked(1)]))


def test_a_killed_worker_interrupts_nothing_else(files):
    """torch's handler of SIGCHLD would raise here, in the middle of an update."""
    coming = Stream(FileReader(files), brightness, side=None, workers=1)(asked(n) for n in range(12))
    next(coming)
    (worker,) = multiprocessing.active_children()
    os.kill(worker.pid, signal.SIGKILL)
    worker.join(10)
    assert sum(range(1000)) == 499500
    assert len(list(coming)) == 11


@pytest.mark.parametrize("often", [1, 2])
def test_without_shared_memory_images_come_through_pipes(files, monkeypatch, capsys, often):
    """As in a container with 64 MB of /dev/shm, where the parent would wait for ever."""
    share, calls = torch.Tensor.share_memory_, []

    def refuse(tensor):
        calls.append(tensor)
        if len(calls) % often == 0:
            raise RuntimeError("unable to allocate shared memory(shm): No space left on device (28)")
        return share(tensor)

    monkeypatch.setattr(torch.Tensor, "share_memory_", refuse)
    notify_once.cache_clear()
    batches = [asked(n, 11 - n) for n in range(12)]
    found = list(Stream(FileReader(files), brightness, side=None, workers=2)(iter(batches)))
    assert [d.pixels[:, 0, 0].tolist() for d in found] == [[n + 100, 111 - n] for n in range(12)]
    (line,) = capsys.readouterr().err.splitlines()
    assert "/dev/shm is too small" in line
