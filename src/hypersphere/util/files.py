"""Files that are written whole or not at all, new folders, and locks between processes."""

import contextlib
import hashlib
import itertools
import json
import math
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def write_atomically(path: Path, blob: bytes | memoryview, *, shared: bool = False) -> None:
    """Replace a file, or leave it as it was if that fails (full disk, kill, power loss).

    Args:
        path: The file to write.
        blob: Its new content.
        shared: Whether other processes may write the same file at the same time.

    Raises:
        UserError: If the file cannot be written.
    """
    scratch = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part") if shared else None
    with put_in_place(path, scratch) as file:
        file.write_bytes(blob)


@contextlib.contextmanager
def put_in_place(path: Path, scratch: Path | None = None) -> Iterator[Path]:
    """Yield a temporary file beside `path` to write to; at the end it replaces `path`.

    If anything fails, the temporary file is removed and `path` is left as it was.

    Raises:
        UserError: If the file cannot be written.
    """
    scratch = scratch or path.with_name(path.name + ".part")
    try:
        yield scratch
        with open(scratch, "rb") as file:
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError as error:
        kept = "; the one before is untouched" if path.exists() else ""
        raise UserError(f"could not write {path}: {error.strerror or error}{kept}") from None
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record as JSON, atomically; NaN and infinity, which JSON lacks, become null."""
    text = json.dumps(_finite(record), indent=2, allow_nan=False)
    write_atomically(path, f"{text}\n".encode(), shared=True)


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
def lock_folder(folder: Path, patience: float = 0.0, lock: str = ".lock") -> Iterator[None]:
    """Lock a folder against other processes that lock it, too.

    The operating system releases the lock however this process ends.

    Args:
        folder: The folder to lock.
        patience: Seconds to wait for another process to release it.
        lock: Name of the lock file in the folder; several names are independent locks.

    Raises:
        UserError: If another process holds the lock, or the lock file cannot be written.
    """
    try:
        held = FileLock(folder / lock).acquire(timeout=patience)
    except Timeout:
        raise UserError(f"{folder} is in use by another process: wait until it ends, or stop it") from None
    except OSError as error:
        raise UserError(f"could not write {folder / lock}: {error.strerror}") from None
    with held:
        yield


def sha256_of(file: str | Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
