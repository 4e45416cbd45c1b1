"""Downloads from a host of our own, which can do without ranges, cut connections and answer nothing."""

import hashlib
import io
import os
import resource
import shutil
import tarfile
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hypersphere.data import fetch
from hypersphere.data.fetch import Archive, NotDownloaded, fetch_archive
from hypersphere.errors import UserError
from tests.processes import Process


class Host(ThreadingHTTPServer):
    """Sends one archive; `asked` holds the ranges it was asked for."""

    def __init__(self, blob: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.blob, self.asked = blob, []
        self.ranges = True
        self.cuts = []  # bytes sent before the connection ends, for each of the first answers
        self.codes = []  # of the first answers
        self.silence = []  # seconds before each of the first answers
        self.gate = threading.Event()  # no answer before it is set
        self.gate.set()

    def archive(self, **changes) -> Archive:
        facts = {"name": "tiny", "md5": hashlib.md5(self.blob).hexdigest(), "holds": "tiny/a.bin"}
        return Archive(**{**facts, "url": f"http://127.0.0.1:{self.server_port}/tiny.tar.gz", **changes})


class Answer(BaseHTTPRequestHandler):
    server: Host

    def do_GET(self) -> None:
        host, wanted = self.server, self.headers.get("Range")
        host.asked.append(wanted)
        host.gate.wait(20)
        if host.silence:
            time.sleep(host.silence.pop(0))
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and host.ranges else 0
        body = host.blob[start:]
        if host.codes or not body:
            self.send_error(host.codes.pop(0) if host.codes else 416)
            return
        self.send_response(206 if wanted and host.ranges else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: host.cuts.pop(0)] if host.cuts else body)

    def log_message(self, *args) -> None: ...


def packed(files: dict[str, bytes], compress: bool = False) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", compresslevel=9 if compress else 0) as tar:
        for name, blob in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(blob)
            tar.addfile(member, io.BytesIO(blob))
    return made.getvalue()


CONTENT = bytes(range(256)) * 40


@pytest.fixture
def host(monkeypatch):
    monkeypatch.setattr(fetch, "PAUSES", (0, 0, 0, 0))
    server = Host(packed({"tiny/a.bin": CONTENT, "tiny/b.bin": b"b"}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def listed(root) -> list[str]:
    """All but the lock, which stays."""
    return sorted(set(os.listdir(root)) - {".tiny.tar.gz.lock"})


def arrived(root) -> bool:
    return (
        listed(root) == ["tiny"]
        and (root / "tiny/a.bin").read_bytes() == CONTENT
        and (root / "tiny/b.bin").read_bytes() == b"b"
    )


def test_an_archive_is_downloaded_checked_and_unpacked(host, tmp_path):
    fetch_archive(host.archive(), tmp_path / "new" / "folder")
    assert arrived(tmp_path / "new" / "folder")
    assert host.asked == [None]


def test_a_download_that_was_cut_goes_on(host, tmp_path):
    host.cuts = [3000, 4000]
    fetch_archive(host.archive(), tmp_path)
    assert arrived(tmp_path)
    assert host.asked == [None, "bytes=3000-", "bytes=7000-"]


def test_a_host_without_ranges_is_asked_for_all_again(host, tmp_path):
    host.ranges, host.cuts = False, [3000, 5000]
    fetch_archive(host.archive(), tmp_path)
    assert arrived(tmp_path)
    assert host.asked == [None, "bytes=3000-", "bytes=5000-"]


def test_the_next_call_goes_on_with_what_the_last_one_left(host, tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr(fetch, "PAUSES", (0, 1, 2))
    monkeypatch.setattr(time, "sleep", slept.append)
    host.cuts = [1000, 1000, 1000]
    with pytest.raises(NotDownloaded, match=f"connection ended after 3,000 of {len(host.blob):,} bytes") as told:
        fetch_archive(host.archive(), tmp_path)
    assert "\n" not in str(told.value)
    assert listed(tmp_path) == ["tiny.tar.gz.part"]
    assert slept == [0, 1, 2]
    host.asked.clear()
    fetch_archive(host.archive(), tmp_path)
    assert arrived(tmp_path)
    assert host.asked == ["bytes=3000-"]


@pytest.mark.parametrize("length", [100, 1_000_000])
def test_what_is_no_part_of_the_archive_is_thrown_away(host, tmp_path, length):
    """Shorter than the archive, it only shows when all is there; longer, the host has nothing to add."""
    (tmp_path / "tiny.tar.gz.part").write_bytes(b"?" * length)
    fetch_archive(host.archive(), tmp_path)
    assert arrived(tmp_path)
    assert host.asked == [f"bytes={length}-", None]


def test_a_wrong_hash_is_refused_once(host, tmp_path):
    with pytest.raises(NotDownloaded, match=f"could not be downloaded .*md5 .*{host.archive().md5}, not 000") as told:
        fetch_archive(host.archive(md5="0" * 32), tmp_path)
    assert "\n" not in str(told.value)
    assert host.asked == [None]
    assert listed(tmp_path) == []


def test_a_busy_host_is_asked_again_and_one_that_refuses_is_not(host, tmp_path):
    host.codes = [503, 429]
    fetch_archive(host.archive(), tmp_path / "busy")
    assert arrived(tmp_path / "busy")
    assert len(host.asked) == 3
    host.codes = [404]
    with pytest.raises(NotDownloaded, match="404"):
        fetch_archive(host.archive(), tmp_path / "refused")
    assert len(host.asked) == 4
    assert listed(tmp_path / "refused") == []


def test_a_silent_host_is_asked_again(host, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "PATIENCE", 0.5)
    host.silence = [1.0]
    fetch_archive(host.archive(), tmp_path)
    assert arrived(tmp_path)
    assert len(host.asked) == 2


def test_no_network_is_told_at_once(tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    archive = Archive("tiny", "http://127.0.0.1:9/tiny.tar.gz", "0" * 32, "tiny/a.bin")
    with pytest.raises(NotDownloaded, match="Connection refused") as told:
        fetch_archive(archive, tmp_path)
    assert slept == [0]
    assert str(tmp_path / "tiny" / "a.bin") in str(told.value)
    assert "\n" not in str(told.value)
    assert listed(tmp_path) == []


@pytest.fixture
def files_of_at_most():
    """A limit on the size of files: writing fails at it, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_told_and_the_download_goes_on_later(host, tmp_path, files_of_at_most):
    files_of_at_most(4000)
    with pytest.raises(UserError, match=r"could not write .*tiny\.tar\.gz\.part: File too large") as told:
        fetch_archive(host.archive(), tmp_path)
    assert "\n" not in str(told.value)
    files_of_at_most(resource.RLIM_INFINITY)
    fetch_archive(host.archive(), tmp_path)
    assert arrived(tmp_path)
    assert host.asked == [None, "bytes=4000-"]


def test_without_room_to_unpack_the_archive_stays(host, tmp_path, files_of_at_most):
    host.blob = packed({"tiny/a.bin": CONTENT, "tiny/b.bin": b"b"}, compress=True)
    files_of_at_most(5000)
    with pytest.raises(UserError, match=r"could not unpack .*: File too large"):
        fetch_archive(host.archive(), tmp_path)
    assert listed(tmp_path) == ["tiny.tar.gz.part"]
    files_of_at_most(resource.RLIM_INFINITY)
    fetch_archive(host.archive(), tmp_path)
    assert arrived(tmp_path)
    assert host.asked == [None]


@pytest.mark.parametrize("name", ["../outside", "tiny/../../outside"])
def test_an_archive_writes_nowhere_else(host, tmp_path, name):
    host.blob = packed({"tiny/a.bin": b"", name: b"harm"})
    root = tmp_path / "root"
    with pytest.raises(UserError, match="could not unpack"):
        fetch_archive(host.archive(), root)
    assert listed(tmp_path) == ["root"]
    assert listed(root) == ["tiny.tar.gz.part"]


def test_an_archive_of_something_else_is_told(host, tmp_path):
    with pytest.raises(UserError, match="does not contain tiny/c"):
        fetch_archive(host.archive(holds="tiny/c.bin"), tmp_path)
    host.blob = b"no archive"
    with pytest.raises(UserError, match=r"could not unpack .*not"):
        fetch_archive(host.archive(), tmp_path / "other")


def test_what_was_there_is_replaced_as_a_whole(host, tmp_path):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "old.bin").write_bytes(b"old")
    fetch_archive(host.archive(), tmp_path)
    assert arrived(tmp_path)
    assert sorted(os.listdir(tmp_path / "tiny")) == ["a.bin", "b.bin"]


def test_an_archive_that_lies_there_is_used_and_left(host, tmp_path):
    (tmp_path / "tiny.tar.gz").write_bytes(host.blob)
    fetch_archive(host.archive(), tmp_path)
    assert host.asked == []
    assert listed(tmp_path) == ["tiny", "tiny.tar.gz"]
    shutil.rmtree(tmp_path / "tiny")
    (tmp_path / "tiny.tar.gz").write_bytes(host.blob[:-1])
    with pytest.raises(UserError, match=r"tiny\.tar\.gz is damaged: remove it"):
        fetch_archive(host.archive(), tmp_path)


def wait_until(happened) -> None:
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_process_waits_for_another_that_downloads(host, tmp_path, monkeypatch):
    """The host sends nothing to the first before the second has said that it waits."""
    told = []
    monkeypatch.setattr(fetch, "notify", lambda message: (told.append(message), host.gate.set()))
    host.gate.clear()
    other = Process("data", prepare=partial(fetch_archive, host.archive(), tmp_path))
    wait_until(lambda: host.asked)
    fetch_archive(host.archive(), tmp_path)
    assert told == [f"waiting for another process that downloads tiny into {tmp_path}"]
    assert arrived(tmp_path)
    assert other.wait() == 0
    assert host.asked == [None]


def unpack_slowly(archive, root):
    """Put nothing in place before there is a file "go"."""
    at_once = fetch.move_folder

    def late(made, root):
        (root / "unpacked").touch()
        wait_until((root / "go").exists)
        at_once(made, root)

    fetch.move_folder = late
    fetch_archive(archive, root)


def test_a_process_waits_for_another_that_unpacks(host, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(fetch, "notify", lambda message: (told.append(message), (tmp_path / "go").touch()))
    (tmp_path / "tiny.tar.gz").write_bytes(host.blob)
    other = Process("data", prepare=partial(unpack_slowly, host.archive(), tmp_path))
    wait_until((tmp_path / "unpacked").exists)
    fetch_archive(host.archive(), tmp_path)
    assert told == [f"waiting for another process that downloads tiny into {tmp_path}"]
    assert other.wait() == 0
    assert (tmp_path / "tiny" / "a.bin").read_bytes() == CONTENT


def test_another_process_may_be_faster_where_files_cannot_be_locked(host, tmp_path, monkeypatch):
    def late(made, root):
        shutil.copytree(made, root / made.name)  # the other's, after this one has looked
        made.rename(root / made.name)

    monkeypatch.setattr(fetch, "move_folder", late)
    fetch_archive(host.archive(), tmp_path)
    assert arrived(tmp_path)


def test_who_was_killed_is_not_waited_for(host, tmp_path):
    host.gate.clear()
    other = Process("data", prepare=partial(fetch_archive, host.archive(), tmp_path))
    wait_until(lambda: host.asked)
    other.kill()
    other.wait()
    host.gate.set()
    fetch_archive(host.archive(), tmp_path)
    assert arrived(tmp_path)
