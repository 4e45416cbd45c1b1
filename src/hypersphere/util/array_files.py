"""Arrays in .npy and .npz files: headers, checked against the size of the file before memory is taken."""

import math
import os
import zipfile
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

DEFLATE = 1032  # most bytes that deflate makes of one


class ArrayHeader(NamedTuple):
    shape: tuple[int, ...]
    by_column: bool  # order of the numbers
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes]) -> ArrayHeader:
    """Read the header of an array."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return ArrayHeader(*read(file))


def open_array(path: Path, member: str | None = None) -> IO[bytes]:
    """Open a .npy file, or an array in a .npz file."""
    return open(path, "rb") if member is None else zipfile.ZipFile(path).open(f"{member}.npy")


def checked_header(path: Path, member: str | None = None) -> ArrayHeader:
    """The header of an array in a file.

    Args:
        path: A .npy or .npz file.
        member: Name of the array in a .npz file.

    Raises:
        ValueError: If the header promises more numbers than the file holds.
    """
    held = os.path.getsize(path)
    if member is not None:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(f"{member}.npy")
        most = held if info.compress_type == zipfile.ZIP_STORED else DEFLATE * min(held, info.compress_size)
        held = min(info.file_size, most)
    with open_array(path, member) as file:
        header = read_header(file)
    if min(header.shape, default=0) < 0 or header.size > held:
        promised = f"an array of shape {header.shape}, which needs {header.size:,} bytes"
        raise ValueError(f"its header promises {promised}, but it holds {held:,}")
    return header
