"""Download dataset archives: resume partial downloads, check them, unpack them, and move them into place at once."""

import contextlib
import hashlib
import http.client
import io
import os
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from hypersphere.errors import UserError, first_line
from hypersphere.util.console import notify, progress_bar
from hypersphere.util.files import lock_folder, make_folder

PAUSES = (0, 1, 2, 4, 8, 16)  # seconds before each try
PATIENCE = 30  # seconds without a byte after which a try ends
BLOCK = 1 << 20  # most bytes to read at once


@dataclass(frozen=True)
class Archive:
    """A .tar file of a dataset: its URL, its hash, and what it contains."""

    name: str  # of the dataset
    url: str
    md5: str
    holds: str  # a path in the archive; its first folder is moved into place

    @property
    def file(self) -> str:
        return self.url.rsplit("/", 1)[-1]

    @property
    def folder(self) -> str:
        return self.holds.split("/", 1)[0]


class NotDownloaded(UserError):
    def __init__(self, archive: Archive, root: Path, reason: str) -> None:
        super().__init__(
            f"{archive.name} is not in {root} and could not be downloaded ({reason}): "
            f"unpack {archive.url} so that {root / archive.holds} exists, or pass its location as `root`"
        )


class _Failed(Exception):
    """A download that should not be tried again, with the reason."""


def take(archive: Archive, root: Path) -> None:
    """Unpack the archive if it is in `root`, else download it from its host."""
    given = root / archive.file
    if not given.is_file():
        notify(f"{archive.name} is not in {root}: downloading it from {archive.url}")
        _fetch_from_host(archive, root)
    elif md5_of(given) == archive.md5:
        _unpack(archive, given, root)
    else:
        raise UserError(f"{given} is damaged: remove it to download it again")


def fetch_archive(archive: Archive, root: Path, get: Callable[[Archive, Path], None] = take) -> None:
    """Call `get` to put the content of the archive into `root`; other processes wait until it is done."""
    make_folder(root)
    waiting = f"waiting for another process that downloads {archive.name} into {root}"
    with lock_folder(root, lock=f".{archive.file}.lock", waiting=lambda: notify(waiting)):
        if not (root / archive.holds).exists():
            get(archive, root)


def _fetch_from_host(archive: Archive, root: Path) -> None:
    part = root / f"{archive.file}.part"
    with _opened(part) as file:
        try:
            _download(archive, file)
            _unpack(archive, part, root)
            file.truncate(0)  # only now: if unpacking fails, the next call starts from the downloaded file
        except _Failed as reason:
            raise NotDownloaded(archive, root, str(reason)) from None
        finally:
            if os.fstat(file.fileno()).st_size == 0:
                with contextlib.suppress(OSError):  # some systems cannot delete an open file
                    part.unlink()


def _opened(path: Path) -> io.FileIO:
    """Open a file for appending."""
    try:
        return open(path, "ab", buffering=0)
    except OSError as error:
        raise UserError(f"could not write {path}: {error.strerror}") from None


def _download(archive: Archive, file: io.FileIO) -> None:
    """Download the missing rest of the file, in several tries; discard a complete file with a wrong hash."""
    path, reason = Path(file.name), ""
    if md5_of(path) == archive.md5:
        return
    for n, pause in enumerate(PAUSES):
        time.sleep(pause)
        try:
            added = _receive(archive, file)
        except (OSError, http.client.HTTPException) as error:
            reason = what_went_wrong(error)
            _check_temporary(error, first=n == 0)
            if isinstance(error, HTTPError) and error.code == 416:  # the partial file is longer than the archive
                file.truncate(0)
            continue
        found = md5_of(path)
        if found == archive.md5:
            return
        file.truncate(0)
        reason = f"the downloaded file has md5 {found}, not {archive.md5}"
        if not added:  # otherwise the earlier part may have been wrong
            raise _Failed(reason)
    raise _Failed(reason)


def _check_temporary(error: Exception, first: bool) -> None:
    """Give up at once if the host cannot be found or refuses; return if another try may help."""
    if isinstance(error, HTTPError):
        error.close()
        temporary = error.code >= 500 or error.code in (408, 416, 429)
    else:
        temporary = not (first and isinstance(error, URLError))
    if not temporary:
        raise _Failed(what_went_wrong(error))


def _receive(archive: Archive, file: io.FileIO) -> bool:
    """Write what the host sends; return whether it was appended to the earlier content of the file."""
    have = file.seek(0, os.SEEK_END)
    wanted = {"Range": f"bytes={have}-"} if have else {}
    with urlopen(Request(archive.url, headers={"User-Agent": "hypersphere", **wanted}), timeout=PATIENCE) as response:
        added = response.status == 206
        if not added:  # the host ignores the range and sends everything
            have = file.seek(0)
            file.truncate()
        total = have + int(response.headers.get("Content-Length") or 0)
        with progress_bar(f"downloading {archive.file}", total, have, show=total > have) as bar:
            while block := response.read1(BLOCK):
                _write(file, block)
                have += len(block)
                bar.update(have)
    if have < total:
        raise ConnectionError(f"the connection ended after {have:,} of {total:,} bytes")
    return added


def _write(file: io.FileIO, block: bytes) -> None:
    left = memoryview(block)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        problem = f"could not write {file.name}: {error.strerror}"
        raise UserError(f"{problem}; run the command again to continue the download") from None


def _unpack(archive: Archive, file: Path, root: Path) -> None:
    notify(f"unpacking {file}")
    try:
        with tempfile.TemporaryDirectory(dir=root, prefix=".unpacking-") as scratch:
            with tarfile.open(file) as tar:
                tar.extractall(scratch, filter="data")
            if not Path(scratch, archive.holds).exists():
                raise UserError(f"{file} does not contain {archive.holds}")
            move_folder(Path(scratch, archive.folder), root)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        if (root / archive.holds).exists():  # another process was faster, on a disk without file locks
            return
        raise UserError(f"could not unpack {file} in {root}: {what_went_wrong(error)}") from None


def move_folder(made: Path, root: Path) -> None:
    """Move a folder from a temporary folder into `root`, and an older folder of its name the other way."""
    target = root / made.name
    if target.exists():
        target.rename(made.with_name(f"{made.name}.before"))
    made.rename(target)


def md5_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def what_went_wrong(error: Exception) -> str:
    """The reason of an error, in one line."""
    cause = error.reason if type(error) is URLError and isinstance(error.reason, Exception) else error
    return getattr(cause, "strerror", None) or first_line(cause)
