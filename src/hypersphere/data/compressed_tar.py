"""Compressed tar files, which are decompressed once: to find an image in them takes reading all that comes before."""

import bz2
import gzip
import hashlib
import lzma
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypersphere.data.pixel_cache import cache_folder
from hypersphere.errors import UserError, first_line
from hypersphere.util.console import notify
from hypersphere.util.files import put_in_place
from hypersphere.util.free_memory import in_bytes

OPENERS: dict[str, Callable[[Path], Any]] = {
    ".tar.gz": gzip.open, ".tgz": gzip.open, ".tar.bz2": bz2.open, ".tbz2": bz2.open, ".tar.xz": lzma.open,
    ".txz": lzma.open,
}  # fmt: skip
AT_ONCE = 2**22  # bytes
SPARE = 0.1  # of the free disk space, which is left


def decompressed(path: Path) -> Path:
    """The tar file inside a compressed one, in the folder of decoded images.

    Only one file is written, whatever the archive contains, and it may not fill the disk.

    Raises:
        UserError: If the file cannot be read, or there is too little room.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        raise UserError(f"file not found: {path}" if missing else f"{path}: {error.strerror}") from None
    key = hashlib.sha256(f"{path} {found.st_size} {found.st_mtime_ns}".encode()).hexdigest()[:32]
    target = cache_folder() / f"{key}.tar"
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    room = int((1 - SPARE) * shutil.disk_usage(target.parent).free)
    opener = next(opener for suffix, opener in OPENERS.items() if path.name.lower().endswith(suffix))
    with put_in_place(target) as scratch, opener(path) as packed, open(scratch, "wb") as file:
        while block := _read(packed, path):
            room -= len(block)
            if room < 0:
                raise UserError(f"{path} does not fit on the disk of {target.parent}: set $HYPERSPHERE_CACHE")
            file.write(block)
    notify(f"{path} is compressed: it was unpacked to {target} ({in_bytes(target.stat().st_size)}), once")
    return target


def _read(packed: Any, path: Path) -> bytes:
    try:
        return packed.read(AT_ONCE)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{path} cannot be decompressed ({first_line(error)})") from None
