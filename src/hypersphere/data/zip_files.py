"""Images in zip files, which are read one by one where they lie: nothing is unpacked."""

import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from hypersphere.data.bands import Unreadable
from hypersphere.errors import UserError, first_line

MEMBER = re.compile(r"(?P<zip>.*?\.zip)[/\\](?P<name>.+)", re.DOTALL | re.IGNORECASE)
LARGEST = 2**29  # bytes of a member: a small one may promise to unpack to any number


def zip_and_name(path: str | Path) -> tuple[str, str] | None:
    """(zip file, name of a member) of a path such as photos.zip/cats/1.jpg; None if no zip file is on its way."""
    found = MEMBER.fullmatch(os.fspath(path))
    return (found["zip"], found["name"]) if found and os.path.isfile(found["zip"]) else None


def names_in(path: Path) -> Iterator[str]:
    """Names of the files in a zip file, as relative paths without "..".

    Raises:
        UserError: If it is not a zip file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = dict.fromkeys(archive.namelist())
    except FileNotFoundError:
        raise UserError(f"file not found: {path}") from None
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        raise UserError(f"{path} cannot be read as a zip file ({first_line(error)})") from None
    for name in names:
        parts = name.split("/")
        if all(part not in ("", "..") for part in parts) and not any(p.startswith((".", "__MACOSX")) for p in parts):
            yield name


def read_member(archive: str, name: str) -> bytes:
    """The content of a file in a zip file.

    Raises:
        Unreadable: If it is missing, encrypted, damaged or too large.
    """
    try:
        found = _of_process(archive, os.getpid())
        info = found.getinfo(name)
        if info.flag_bits & 1:
            raise Unreadable("it is encrypted")
        if info.file_size > LARGEST:
            raise Unreadable(f"it is too large: {info.file_size:,} bytes")
        return found.read(info)
    except KeyError:
        raise Unreadable(f"it is not in {archive}") from None
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, ValueError) as error:
        raise Unreadable(first_line(error)) from None


def has_member(archive: str, name: str) -> bool:
    try:
        return name in _of_process(archive, os.getpid()).NameToInfo
    except (OSError, zipfile.BadZipFile, ValueError):
        return False


@lru_cache(maxsize=16)
def _of_process(archive: str, process: int) -> zipfile.ZipFile:
    """Open a zip file once in each process, since processes must not share a position in it."""
    return zipfile.ZipFile(archive)
