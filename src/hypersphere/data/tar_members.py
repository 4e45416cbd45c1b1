"""Find the bytes of an image by its name: a file, a member of a tar or zip file, or a frame of a video."""

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from hypersphere.data.bands import errors_as_unreadable
from hypersphere.data.videos import FRAME, read_frame
from hypersphere.data.zip_files import has_member, read_member, zip_and_name
from hypersphere.errors import UserError

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
    """The name as `Listing.paths` holds it: a string for a member of a tar file or a frame, else a Path."""
    return name if MEMBER.fullmatch(name) or FRAME.fullmatch(name) else Path(name)


def container_of(name: str | Path) -> str:
    """The file that has an image: the tar or zip file, the video, or the image file itself."""
    if isinstance(name, str):
        if found := MEMBER.fullmatch(name):
            return found["tar"]
        if found := FRAME.fullmatch(name):
            return found["video"]
    member = zip_and_name(name)
    return os.fspath(name) if member is None else member[0]


def exists(name: str | Path) -> bool:
    """Whether there is such an image; of a tar file or a video, whether there is the file."""
    member = zip_and_name(name) if isinstance(name, Path) else None
    return has_member(*member) if member else "://" in container_of(name) or os.path.exists(container_of(name))


def opened(name: str | Path) -> Path | bytes:
    """Argument for `read_pixels`: the path of a file, or the bytes of a member or frame."""
    found = MEMBER.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        if isinstance(name, str) and FRAME.fullmatch(name):
            return read_frame(name)
        member = zip_and_name(name)
        return Path(name) if member is None else read_member(*member)
    system, path = file_system(found["tar"])
    start, size = int(found["offset"]), int(found["size"])
    with errors_as_unreadable():
        content = system.cat_file(path, start=start, end=start + size)
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
        raise UserError(f"cannot open {url} ({error}): try pip install 'fsspec[http]'") from None
