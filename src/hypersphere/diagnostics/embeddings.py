"""Embeddings in files: .npy, .npz and .parquet, read in pieces, so that any number of them fits."""

import contextlib
import dataclasses
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from hypersphere.errors import UserError, first_line
from hypersphere.util.progress import tell

PIECE = 2**25  # bytes read at once


@dataclasses.dataclass(frozen=True)
class Embeddings:
    """N × D numbers, a piece of rows at a time."""

    name: str
    rows: int
    dimensions: int
    pieces: Callable[[], Iterator[np.ndarray]]


def of_array(x: np.ndarray, name: str = "embeddings") -> Embeddings:
    _check_shape(x.shape, x.dtype, name)
    step = max(1, PIECE // max(1, x.shape[1] * x.dtype.itemsize))
    rows, dimensions = x.shape
    return Embeddings(name, rows, dimensions, lambda: (x[first : first + step] for first in range(0, rows, step)))


def read_embeddings(path: Path) -> Embeddings:
    readers = {".npy": _npy, ".npz": _npz, ".parquet": _parquet}
    if path.suffix not in readers:
        raise UserError(f"{path}: embeddings are read from {', '.join(readers)}")
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty")
    with _told(path):
        found = readers[path.suffix](path)

    def pieces() -> Iterator[np.ndarray]:
        with _told(path):
            for piece in found.pieces():
                if piece.shape[1] != found.dimensions:
                    sizes = f"{found.dimensions} and {piece.shape[1]}"
                    raise UserError(f"{path} is ragged: its vectors have {sizes} dimensions")
                yield piece

    return dataclasses.replace(found, pieces=pieces)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """What is wrong with a file, in a line."""
    try:
        yield
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} cannot be read as {path.suffix} ({first_line(error)})") from None


def _check_shape(shape: tuple[int, ...], dtype: Any, name: str | Path) -> None:
    if np.dtype(dtype).hasobject:
        raise UserError(f"{name} holds Python objects (ragged rows?): embeddings are one N × D array of numbers")
    if not (np.issubdtype(dtype, np.floating) or np.issubdtype(dtype, np.integer)):
        raise UserError(f"{name} holds {dtype}: embeddings are numbers")
    if len(shape) != 2:
        raise UserError(f"{name} has the shape {shape}: embeddings are N × D")
    if shape[0] < 2 or shape[1] < 2:
        raise UserError(f"{name} has the shape {shape}: two rows and two columns are the least")


def _npy(path: Path) -> Embeddings:
    with open(path, "rb") as file:
        shape, by_column, dtype = _read_header(file)
    return _stream(str(path), lambda: open(path, "rb"), shape, by_column, dtype)


def _npz(path: Path) -> Embeddings:
    """The one matrix in it, or the one called embeddings or features."""
    with zipfile.ZipFile(path) as archive:
        headers = {name.removesuffix(".npy"): _header(archive, name) for name in archive.namelist()}
    matrices = [name for name, (shape, *_) in headers.items() if len(shape) == 2]
    named = [name for name in ("embeddings", "features") if name in matrices]
    for name in {"embeddings", "features"} & headers.keys() if not matrices else ():
        _check_shape(headers[name][0], headers[name][2], f"{path}:{name}")
    if len(matrices) != 1 and not named:
        raise UserError(f"{path} has no one N × D array: there are {', '.join(headers) or 'none'}; name it embeddings")
    name = named[0] if named else matrices[0]
    return _stream(f"{path}:{name}", lambda: zipfile.ZipFile(path).open(f"{name}.npy"), *headers[name])


def _stream(
    name: str, opened: Callable[[], IO[bytes]], shape: tuple[int, ...], by_column: bool, dtype: np.dtype
) -> Embeddings:
    """Not mapped into memory, where pages of a large file would pile up."""
    _check_shape(shape, dtype, name)
    rows, dimensions = shape
    if by_column:  # the numbers of a row are far apart
        with opened() as file:
            return of_array(np.lib.format.read_array(file, allow_pickle=False), name)

    def pieces() -> Iterator[np.ndarray]:
        row, step = dimensions * dtype.itemsize, max(1, PIECE // (dimensions * dtype.itemsize))
        with opened() as file:
            _read_header(file)
            for first in range(0, rows, step):
                count = min(step, rows - first)
                part = file.read(count * row)
                if len(part) < count * row:
                    raise UserError(
                        f"{name} is cut off: it should have {rows:,} rows, and ends in row {first + len(part) // row:,}"
                    )
                yield np.frombuffer(part, dtype).reshape(count, dimensions)

    return Embeddings(name, rows, dimensions, pieces)


def _header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    with archive.open(name) as file:
        return _read_header(file)


def _read_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file)


def _parquet(path: Path) -> Embeddings:
    """The one column of vectors; or else all columns of numbers, a dimension each: of whole numbers, such as those of
    rows or labels, where there are no others."""
    try:
        import pyarrow as arrow  # type: ignore[import-untyped]
        from pyarrow import parquet
    except ImportError:
        raise UserError(f"{path}: reading .parquet needs pyarrow: pip install 'hypersphere[parquet]'") from None
    try:
        file = parquet.ParquetFile(path, pre_buffer=False)  # or all that was read is kept
    except arrow.ArrowInvalid as error:
        raise ValueError(str(error)) from None
    schema, types = file.schema_arrow, arrow.types
    kinds = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    lists = [f.name for f in schema if any(kind(f.type) for kind in kinds)]
    floats, whole = ([f.name for f in schema if kind(f.type)] for kind in (types.is_floating, types.is_integer))
    scalars = floats or [name for name in whole if not name.startswith("__index_level_")]  # of pandas
    if len(lists) > 1:
        raise UserError(f"{path} has several columns of vectors ({', '.join(lists)}): keep one")
    if not lists and not scalars:
        raise UserError(f"{path} has no column of vectors and none of numbers")
    columns = lists or scalars
    if floats and whole and not lists:
        tell(f"{path}: the columns of whole numbers ({', '.join(whole)}) are taken for none of the vectors")

    def pieces() -> Iterator[np.ndarray]:
        for part in file.iter_batches(batch_size=8192, columns=columns):
            yield _vectors(part.column(0), path) if lists else _columns(part)

    first = next(pieces(), np.zeros((0, 0), np.float32))
    rows, dimensions = file.metadata.num_rows, first.shape[1]
    _check_shape((rows, dimensions), first.dtype, path)
    return Embeddings(str(path), rows, dimensions, pieces)


def _vectors(column: Any, path: Path) -> np.ndarray:
    lengths = column.value_lengths()
    if column.null_count:
        raise UserError(f"{path} has rows without a vector: leave them out")
    if len(lengths.unique()) != 1:
        raise UserError(f"{path} is ragged: its vectors have {', '.join(map(str, lengths.unique()))} dimensions")
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)


def _columns(part: Any) -> np.ndarray:
    return np.stack([column.to_numpy(zero_copy_only=False) for column in part.columns], axis=1)
