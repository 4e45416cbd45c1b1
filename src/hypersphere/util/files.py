"""Files that are written whole or not at all, new folders, and locks between processes."""

import contextlib
import glob
import hashlib
import itertools
import json
import math
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from hypersphere.errors import UserError


def check_file(path: Path, option: str) -> None:
    """Check that a file can be created at `path`, before anything is computed.

    Args:
        path: The file that will be written.
        option: The option that names it, for the error message.

    Raises:
        UserError: If `path` is a folder, or its parent folder does not exist.
    """
    if path.is_dir():
        raise UserError(f"`{option}` {path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise UserError(f"`{option}` {path}: there is no folder {path.parent}")


def write_atomically(path: Path, blob: bytes | memoryview, *, keep: Path | None = None) -> None:
    """Replace a file, or leave it as it was if that fails (full disk, kill, power loss).

    Args:
        path: The file to write. Other processes may write it at the same time; the last one wins.
        blob: Its new content.
        keep: A name for the file that is replaced, if there is one. At any moment `path` or `keep` is whole.

    Raises:
        UserError: If the file cannot be written.
    """
    with put_in_place(path, keep=keep) as file:
        file.write_bytes(blob)


@contextlib.contextmanager
def put_in_place(path: Path, *, alone: bool = False, keep: Path | None = None) -> Iterator[Path]:
    """Yield a temporary file beside `path` to write to; at the end it replaces `path`.

    The temporary file is locked while this process lives. If anything fails, it is removed, and `path` is left as it
    was. What a killed process has left behind, the next writer removes.

    Args:
        path: The file to write.
        alone: Whether to refuse if another process is writing `path`, too, rather than let the last one win.
        keep: A name for the file that is replaced, if there is one.

    Raises:
        UserError: If the file cannot be written, or another process writes it and `alone` is set.
    """
    scratch = path.with_name(f"{path.name}.part" if alone else f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with _locked(scratch, unique=not alone) as ours:
            if not ours:
                raise UserError(f"{path} is being written by another process: wait until it ends, or stop it")
            try:
                _remove_leftovers(path, but=scratch)
                yield scratch
                with open(scratch, "rb") as file:
                    os.fsync(file.fileno())
                if keep is not None and path.exists():
                    _keep(path, keep)
                os.replace(scratch, path)
            except BaseException:
                _remove(scratch)
                raise
    except OSError as error:
        kept = "; the one before is untouched" if path.exists() else ""
        raise UserError(f"could not write {path}: {error.strerror or error}{kept}") from None


@contextlib.contextmanager
def _locked(file: Path, unique: bool = False) -> Iterator[bool]:
    """Create or open a file, and lock it while this process lives. False if another process has locked it.

    No other process writes a file with a `unique` name: one that has locked it took it for a leftover, and removes it.
    """
    with contextlib.ExitStack() as owned:
        while True:
            opened = owned.enter_context(open(file, "ab"))
            try:
                _lock(opened)
            except BlockingIOError:
                if unique:
                    continue
                yield False
                return
            except OSError:  # no locks here: every writer is taken for the only one
                break
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(opened.fileno()), os.stat(file)):
                    break  # otherwise the process that had locked it has just put it in place
        yield True


def _lock(opened: IO[bytes]) -> None:
    """Lock an open file until it is closed or this process ends.

    Raises:
        BlockingIOError: If another process has locked it.
        OSError: If the operating system or the file system has no such locks.
    """
    try:
        import fcntl
    except ImportError:
        raise OSError("no flock on this system") from None
    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_leftovers(path: Path, but: Path) -> None:
    """Remove temporary files of `path` whose writers were killed."""
    unique = path.parent.glob(f"{glob.escape(path.name)}.{'[0-9a-f]' * 8}.part")
    for scratch in (path.with_name(f"{path.name}.part"), *unique):
        if scratch != but:
            with contextlib.suppress(OSError), open(scratch, "r+b") as opened:
                _lock(opened)
                scratch.unlink()


def _keep(path: Path, keep: Path) -> None:
    """Give the present file at `path` the name `keep`, too; without hard links, instead."""
    linked = keep.with_name(f"{keep.name}.part")
    _remove(linked)
    try:
        os.link(path, linked)
    except OSError:
        os.replace(path, keep)
    else:
        os.replace(linked, keep)


def _remove(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record as JSON, atomically."""
    write_atomically(path, as_json(record))


def as_json(record: dict[str, Any]) -> bytes:
    """A record as the content of a JSON file; NaN and infinity, which JSON lacks, become null."""
    return (json.dumps(_finite(record), indent=2, allow_nan=False) + "\n").encode()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def make_folder(path: Path) -> None:
    """Create a folder and its parents, unless it exists.

    Raises:
        UserError: If it cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {path}: {error.strerror}") from None


def next_free_folder(path: Path) -> Path:
    """Create the folder; if it exists, create the first of path-2, path-3, … that does not.

    Raises:
        UserError: If it cannot be created.
    """
    for n in itertools.count(1):
        folder = path if n == 1 else path.with_name(f"{path.name}-{n}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(f"cannot make the folder {folder}: {error.strerror}") from None
    raise AssertionError("unreachable")


@contextlib.contextmanager
def lock_folder(
    folder: Path, patience: float = 0.0, lock: str = ".lock", waiting: Callable[[], None] | None = None
) -> Iterator[None]:
    """Lock a folder against other processes that lock it, too.

    The operating system releases the lock however this process ends.

    Args:
        folder: The folder to lock.
        patience: Seconds to wait for another process to release it.
        lock: Name of the lock file in the folder; several names are independent locks.
        waiting: Called if another process holds the lock after `patience`, to wait for as long as it does.

    Raises:
        UserError: If another process holds the lock and there is no `waiting`, or the lock file cannot be written.
    """
    file = FileLock(folder / lock)
    try:
        held = file.acquire(timeout=patience)
    except Timeout:
        if waiting is None:
            raise UserError(f"{folder} is in use by another process: wait until it ends, or stop it") from None
        waiting()
        held = file.acquire()
    except OSError as error:
        raise UserError(f"could not write {folder / lock}: {error.strerror}") from None
    with held:
        yield


def sha256_of(file: str | Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
