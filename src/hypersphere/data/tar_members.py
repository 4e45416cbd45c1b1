"""Find the bytes of an image by its name: an image file, or a member of a tar file."""

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from hypersphere.data.decode import Unreadable
from hypersphere.errors import UserError, first_line

MEMBER = re.compile(r"(?P<tar>.*\.tar)::(?P<offset>\d+)\+(?P<size>\d+)::(?P<name>.*)", re.DOTALL)


class Member(NamedTuple):
    """An image inside a tar file."""

    tar: str
    offset: int
    size: int
    name: str

    def __str__(self) -> str:
        return f"{self.tar}::{self.offset}+{self.size}::{self.name}"


def file_or_member(name: str) -> Path | str:
    """The name as `Listing.paths` holds it: a string for a member of a tar file, a Path for a file."""
    return name if MEMBER.fullmatch(name) else Path(name)


def opened(name: str | Path) -> Path | bytes:
    """Argument for `read_image`: the path of a file, or the bytes of a member."""
    found = MEMBER.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        return Path(name)
    system, path = file_system(found["tar"])
    start, size = int(found["offset"]), int(found["size"])
    try:
        content = system.cat_file(path, start=start, end=start + size)
    except FileNotFoundError:
        raise Unreadable("file not found") from None
    except Exception as error:  # file systems raise all kinds of errors
        raise Unreadable(first_line(error)) from None
    return content if len(content) == size else content[start : start + size]  # some servers send the whole file


def file_system(url: str) -> tuple[Any, str]:
    """(fsspec file system, path in it) of a path or URL."""
    return _of_process(url, os.getpid())


@lru_cache(maxsize=1024)
def _of_process(url: str, process: int) -> tuple[Any, str]:
    """Cached per process, since a connection does not survive a fork."""
    from fsspec.core import url_to_fs  # type: ignore[import-untyped]

    try:
        return url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UserError(f"cannot open {url} ({error}): try pip install 'hypersphere[remote]'") from None
