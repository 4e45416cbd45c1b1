"""Files written whole or not at all, and folders that are new, or one process's own."""

import contextlib
import itertools
import json
import math
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from hypersphere.errors import UserError

try:
    import fcntl
except ImportError:  # no such locks on this platform
    fcntl = None  # type: ignore[assignment]


def check_file(path: Path, option: str) -> None:
    """Can it be written? Asked before anything is computed."""
    if path.is_dir():
        raise UserError(f"`{option}` {path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise UserError(f"`{option}` {path}: there is no folder {path.parent}")


def write_atomically(path: Path, blob: bytes | memoryview, *, shared: bool = False) -> None:
    """Replace `path` by `blob`, or leave it as it was: also at a full disk, a kill, or a loss of power. `shared`: other
    processes may write it at the same time."""
    scratch = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part" if shared else f"{path.name}.part")
    try:
        with open(scratch, "wb") as file:
            file.write(blob)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            scratch.unlink()
        kept = "; the one before is untouched" if path.exists() else ""
        raise UserError(f"could not write {path}: {error.strerror}{kept}") from None


@contextlib.contextmanager
def put_in_place(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to, which takes its place at the end; if anything goes wrong, it is removed."""
    scratch = path.with_name(path.name + ".part")
    try:
        yield scratch
        with open(scratch, "rb") as file:
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError as error:
        raise UserError(f"could not write {path}: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()


def write_json(path: Path, record: dict[str, Any]) -> None:
    """What is no number is null, as JSON has neither NaN nor infinity."""
    text = json.dumps(_finite(record), indent=2, allow_nan=False)
    write_atomically(path, f"{text}\n".encode(), shared=True)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {path}: {error.strerror}") from None


def next_free_folder(path: Path) -> Path:
    """Make the folder, or, where there is one, the first free of path-2, path-3 …"""
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
def own(folder: Path, patience: float = 0.0, lock: str = ".lock") -> Iterator[None]:
    """Keep other processes out of the folder, or of what `lock` stands for in it. However this one ends, the kernel
    lets go. `patience`: seconds to wait until another does."""
    file = folder / lock
    try:
        handle = open(file, "a")  # noqa: SIM115
    except OSError as error:
        raise UserError(f"could not write {file}: {error.strerror}") from None
    with handle:
        end = time.monotonic() + patience
        while not (ours := locked(handle)) and time.monotonic() < end:
            time.sleep(0.1)
        if not ours:
            raise UserError(f"{folder} is in use by another process: let it end, or stop it first")
        yield


def locked(handle: IO[Any]) -> bool:
    """Lock an open file for this process until it is closed; False where another has done so."""
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            pass
    return True
