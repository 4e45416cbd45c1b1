"""Files of embeddings: the path and the vector of each image, and how they were made. Read and written in pieces.

`embed` writes .parquet and .npz, and .csv, which does not say how it was made. `diagnose` reads all three, and any
other .npy, .npz or .parquet file of N × D numbers.

A file name need not be valid UTF-8. In .parquet the column `path` then shows � for the bytes that are not, and a column
`path_bytes` has the exact name (null if `path` is exact). In .npz such bytes are surrogates (see `os.fsencode`).
"""

import contextlib
import csv
import io
import json
import math
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, TypedDict

import numpy as np

from hypersphere.diagnostics.embeddings import Embeddings, check_embeddings
from hypersphere.errors import UserError, first_line
from hypersphere.nn.weights import CARD
from hypersphere.util.array_files import checked_header, open_array, read_header
from hypersphere.util.console import notify
from hypersphere.util.files import check_file
from hypersphere.util.optional import require
from hypersphere.util.records import check_record
from hypersphere.util.run_files import is_run

ABOUT = "hypersphere"  # the metadata key, or the array, that holds provenance as JSON
PIECE = 2**24  # bytes of vectors written or read at once
ROWS = 8192  # read at once from a .parquet file with columns of any kind
SEARCHED = (".parquet", ".npz")  # by `neighbours`, since they say how they were made
WRITTEN = (*SEARCHED, ".csv")


class VectorBatch(NamedTuple):
    """Consecutive rows of a file."""

    paths: Sequence[str]  # as `os.fsdecode` returns them
    vectors: np.ndarray  # N × D, float32
    labels: Sequence[str] = ()  # names of classes, "" if unknown; empty if none is known


Write = Callable[[VectorBatch], None]


class About(TypedDict):
    """What is read of a file's metadata, which say how it was made."""

    encoder: str
    weights: str
    preprocess: dict[str, Any]
    cwd: str


@dataclass(frozen=True)
class EmbeddingFile:
    """A file that `embed` wrote: how it was made, and its rows in pieces."""

    about: About
    dimensions: int
    pieces: Callable[[], Iterator[VectorBatch]]


def check_output(path: Path, kinds: Sequence[str] = WRITTEN) -> None:
    """Refuse an output file that cannot be written, or is not one of these kinds, before anything is computed."""
    if path.suffix not in kinds:
        raise UserError(f"`out` {path} must end in {', '.join(kinds[:-1])} or {kinds[-1]}")
    check_file(path, "out")
    if path.suffix == ".parquet":
        _pyarrow(path)


def writer(
    scratch: Path, kind: str, dimensions: int, about: dict[str, Any], names_are_text: bool, labelled: bool = False
) -> contextlib.AbstractContextManager[Write]:
    """A function that writes rows into `scratch`, a file of the kind that the suffix `kind` names."""
    if kind == ".parquet":
        return _parquet_writer(scratch, dimensions, about, names_are_text, labelled)
    return _npz_writer(scratch, dimensions, about, labelled) if kind == ".npz" else _csv_writer(scratch, dimensions)


def rows_at_once(dimensions: int) -> int:
    return max(1, PIECE // (4 * dimensions))


def is_text(name: str) -> bool:
    """Whether a file name is valid UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(name: str) -> str:
    """A file name as valid UTF-8, with � for other bytes."""
    return os.fsencode(name).decode("utf-8", "replace")


def read_embeddings(path: Path) -> Embeddings:
    """Open any file of embeddings, without reading them all.

    A .npz file must have one N × D array, or one named `embeddings` or `features`. A .parquet file must have one column
    of vectors, or a column of numbers for each dimension. A .csv file must have columns x0, x1, … as `embed` writes.

    Args:
        path: A .npy, .npz, .parquet or .csv file.

    Raises:
        UserError: If the file is damaged, or it is not clear which of its numbers are embeddings.
    """
    kinds = {".npy": _npy, ".npz": _npz, ".parquet": _parquet, ".csv": _csv}
    if path.suffix not in kinds:
        raise UserError(f"{path} must end in {', '.join(kinds)}")
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty")
    with _damage_reported(path):
        found = kinds[path.suffix](path)
    return replace(found, pieces=partial(_reporting_damage, path, found.pieces))


def read_vectors(path: Path) -> EmbeddingFile:
    """Open a file that `embed` wrote, without reading its vectors.

    Raises:
        UserError: If `embed` did not write the file, or it is damaged.
    """
    if path.is_dir():
        first = f"embed images first, as in hypersphere embed {path} IMAGES --out photos.npz"
        advice = first if is_run(path) or (path / CARD).is_file() else f"expected {' or '.join(SEARCHED)}"
        raise UserError(f"{path} is a folder, not a file of embeddings: {advice}")
    if not path.is_file():
        raise UserError(f"{path} does not exist")
    not_ours = f"{path} was not written by hypersphere embed"
    if path.suffix == ".csv":
        raise UserError(f"{path} does not say how it was made: embed the images into {' or '.join(SEARCHED)} instead")
    if path.suffix not in SEARCHED:
        raise UserError(f"{not_ours}: expected {' or '.join(SEARCHED)}")
    try:
        found = _own_parquet(path) if path.suffix == ".parquet" else _own_npz(path)
    except UserError:
        raise
    except Exception:  # libraries raise almost anything
        raise UserError(not_ours) from None
    try:
        check_record(found.about, About)
    except ValueError as error:
        raise UserError(f"{not_ours}: in its metadata, {error}") from None
    return replace(found, pieces=partial(_reporting_damage, path, found.pieces))


@contextlib.contextmanager
def _damage_reported(path: Path) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # libraries raise almost anything
        raise UserError(f"{path} is damaged, or no {path.suffix} file ({first_line(error)})") from None


def _npy(path: Path) -> Embeddings:
    return _array(str(path), path, None)


def _npz(path: Path) -> Embeddings:
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
    matrices = [name for name in names if len(checked_header(path, name).shape) == 2]
    named = [name for name in ("embeddings", "features") if name in (matrices or names)]
    if len(matrices) != 1 and not named:
        found = ", ".join(names) or "none"
        raise UserError(f"{path} must have one N × D array, or one named embeddings: its arrays are {found}")
    name = named[0] if named else matrices[0]
    return _array(f"{path}:{name}", path, name)


def _csv(path: Path) -> Embeddings:
    with _csv_rows(path) as (header, rows):
        count = sum(1 for _ in rows)
    columns = [place for place, name in enumerate(header) if name[:1] == "x" and name[1:].isdecimal()]
    if not columns:
        raise UserError(f"{path} must have columns x0, x1, … as hypersphere embed writes them")
    check_embeddings((count, len(columns)), np.float32, str(path))

    def pieces() -> Iterator[np.ndarray]:
        with _csv_rows(path) as (_, rows):
            while some := [[row[place] for place in columns] for row in islice(rows, rows_at_once(len(columns)))]:
                yield np.array(some, np.float32)

    return Embeddings(str(path), count, len(columns), pieces)


@contextlib.contextmanager
def _csv_rows(path: Path) -> Iterator[tuple[list[str], Iterator[list[str]]]]:
    """The header of a table, and its other rows."""
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        table = csv.reader(file)
        yield next(table), table


def _own_npz(path: Path) -> EmbeddingFile:
    with zipfile.ZipFile(path) as archive:
        about = json.loads(str(np.load(io.BytesIO(archive.read(f"{ABOUT}.npy")), allow_pickle=False)))
    (rows, dimensions), (named,) = (checked_header(path, name).shape for name in ("vector", "path"))
    if rows != named:
        raise ValueError("not as many vectors as paths")

    def pieces() -> Iterator[VectorBatch]:
        step = rows_at_once(dimensions)
        arrays = (_rows(f"{path}:{name}", path, name, step) for name in ("path", "vector"))
        for some, matrix in zip(*arrays, strict=True):
            yield VectorBatch(some.tolist(), matrix)

    return EmbeddingFile(about, dimensions, pieces)


def _array(name: str, path: Path, member: str | None) -> Embeddings:
    shape, _, dtype = checked_header(path, member)
    check_embeddings(shape, dtype, name)
    step = max(1, PIECE // (shape[1] * dtype.itemsize))
    return Embeddings(name, shape[0], shape[1], lambda: _rows(name, path, member, step))


def _reporting_damage(path: Path, pieces: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    with _damage_reported(path):
        yield from pieces()


def _rows(name: str, path: Path, member: str | None, step: int) -> Iterator[np.ndarray]:
    """Rows of an array, `step` at a time. Not mapped into memory, where pages of a large file would pile up."""
    with open_array(path, member) as file:
        shape, by_column, dtype = read_header(file)
        if by_column:  # the numbers of a row are far apart
            with open_array(path, member) as again:
                whole = np.lib.format.read_array(again, allow_pickle=False)
            yield from (whole[first : first + step] for first in range(0, len(whole), step))
            return
        row = dtype.itemsize * math.prod(shape[1:])
        for first in range(0, shape[0], step):
            count = min(step, shape[0] - first)
            part = file.read(count * row)
            if len(part) < count * row:
                end = first + len(part) // row
                raise UserError(f"{name} is cut off: expected {shape[0]:,} rows, found {end:,}")
            yield np.frombuffer(part, dtype).reshape(count, *shape[1:])


def _pyarrow(path: Path) -> Any:
    return require("pyarrow", f"{path}: .parquet", "pyarrow, or use .npz")


def _batches(path: Path, columns: list[str], rows: int) -> Iterator[Any]:
    from pyarrow import parquet  # type: ignore[import-untyped]

    options = {"pre_buffer": False, "page_checksum_verification": True}  # a buffer would keep everything that was read
    with parquet.ParquetFile(path, **options) as file:
        yield from file.iter_batches(batch_size=rows, columns=columns)


def _parquet(path: Path) -> Embeddings:
    types = _pyarrow(path).types
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
    kinds = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    lists = [column.name for column in schema if any(kind(column.type) for kind in kinds)]
    if len(lists) > 1:
        raise UserError(f"{path} has several columns of vectors ({', '.join(lists)}): keep one")
    columns = lists or _number_columns(path, schema, types)
    first = next(_batches(path, columns, 1), None)
    dimensions = 0 if first is None else _matrix(first, bool(lists), path).shape[1]
    check_embeddings((rows, dimensions), np.float32, str(path))

    def pieces() -> Iterator[np.ndarray]:
        for batch in _batches(path, columns, ROWS):
            yield _matrix(batch, bool(lists), path, dimensions)

    return Embeddings(str(path), rows, dimensions, pieces)


def _number_columns(path: Path, schema: Any, types: Any) -> list[str]:
    """One for each dimension. Integers, which may be labels or row numbers, count only if there are no floats."""
    floats, integers = ([c.name for c in schema if kind(c.type)] for kind in (types.is_floating, types.is_integer))
    if floats and integers:
        notify(f"{path}: ignored integer columns: {', '.join(integers)}")
    columns = floats or [name for name in integers if not name.startswith("__index_level_")]  # of pandas
    if not columns:
        raise UserError(f"{path} has no column of vectors or numbers")
    return columns


def _matrix(batch: Any, one_column: bool, path: Path, dimensions: int | None = None) -> np.ndarray:
    """Rows of a batch: of its column of vectors, or of all its columns."""
    if not one_column:
        return np.stack([column.to_numpy(zero_copy_only=False) for column in batch.columns], axis=1)
    column = batch.column(0)
    if column.null_count:
        raise UserError(f"{path} has rows without a vector: remove them")
    lengths = {*column.value_lengths().unique().to_pylist(), *([dimensions] if dimensions else [])}
    if len(lengths) > 1:
        raise UserError(f"{path} has vectors of different lengths: {', '.join(map(str, sorted(lengths)))}")
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)


def _own_parquet(path: Path) -> EmbeddingFile:
    _pyarrow(path)
    from pyarrow import parquet

    schema = parquet.read_schema(path)
    about = json.loads((schema.metadata or {})[ABOUT.encode()])
    dimensions = schema.field("vector").type.list_size
    columns = [name for name in ("vector", "path", "path_bytes") if name in schema.names]

    def pieces() -> Iterator[VectorBatch]:
        for batch in _batches(path, columns, rows_at_once(dimensions)):
            names = batch.column("path").to_pylist()
            if "path_bytes" in columns:
                exact = batch.column("path_bytes").to_pylist()
                names = [name if raw is None else os.fsdecode(raw) for name, raw in zip(names, exact, strict=True)]
            yield VectorBatch(names, _matrix(batch.select(["vector"]), True, path, dimensions))

    return EmbeddingFile(about, dimensions, pieces)


@contextlib.contextmanager
def _parquet_writer(
    path: Path, dimensions: int, about: dict[str, Any], names_are_text: bool, labelled: bool
) -> Iterator[Write]:
    """Writes a row group for each piece."""
    arrow = _pyarrow(path)
    from pyarrow import parquet

    fields = [("path", arrow.string()), ("vector", arrow.list_(arrow.float32(), dimensions))]
    fields += [] if names_are_text else [("path_bytes", arrow.binary())]
    fields += [("label", arrow.string())] if labelled else []
    schema = arrow.schema(fields, metadata={ABOUT: json.dumps(about)})
    options: Any = {"compression": "zstd", "use_dictionary": False, "write_page_checksum": True}
    with open(path, "wb") as file, parquet.ParquetWriter(file, schema, **options) as table:

        def write(piece: VectorBatch) -> None:
            shown = [*map(as_text, piece.paths)]
            flat = arrow.array(np.ascontiguousarray(piece.vectors, np.float32).ravel())
            columns = [arrow.array(shown), arrow.FixedSizeListArray.from_arrays(flat, dimensions)]
            if not names_are_text:
                raw = [None if is_text(name) else os.fsencode(name) for name in piece.paths]
                columns.append(arrow.array(raw, arrow.binary()))
            if labelled:
                columns.append(arrow.array([as_text(name) or None for name in piece.labels], arrow.string()))
            table.write_batch(arrow.record_batch(columns, schema=schema))

        yield write


@contextlib.contextmanager
def _npz_writer(path: Path, dimensions: int, about: dict[str, Any], labelled: bool) -> Iterator[Write]:
    """Keeps vectors in a nameless file until their number, which the header of an array starts with, is known.

    Members are `ZipInfo`s, which have no time of their own: the same vectors give the same bytes.
    """
    path.touch()  # an invalid path fails now
    names: list[str] = []
    labels: list[str] = []
    with tempfile.TemporaryFile(dir=path.parent) as vectors:

        def write(piece: VectorBatch) -> None:
            vectors.write(np.asarray(piece.vectors, "<f4").tobytes())
            names.extend(piece.paths)
            labels.extend(piece.labels)

        yield write
        with zipfile.ZipFile(path, "w") as archive:
            text = io.BytesIO()
            np.save(text, np.array(json.dumps(about)))
            archive.writestr(zipfile.ZipInfo(f"{ABOUT}.npy"), text.getvalue())
            with archive.open(zipfile.ZipInfo("vector.npy"), "w", force_zip64=True) as member:
                _write_header(member, (len(names), dimensions), np.dtype("<f4"))
                vectors.seek(0)
                shutil.copyfileobj(vectors, member, PIECE)
            _write_texts(archive, "path", names)
            if labelled:
                _write_texts(archive, "label", labels)


def _write_texts(archive: zipfile.ZipFile, name: str, texts: Sequence[str]) -> None:
    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
        dtype = np.dtype(f"<U{max(map(len, texts), default=1) or 1}")
        _write_header(member, (len(texts),), dtype)
        for first in range(0, len(texts), ROWS):
            member.write(np.array(texts[first : first + ROWS], dtype).tobytes())


def _write_header(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype) -> None:
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})


@contextlib.contextmanager
def _csv_writer(path: Path, dimensions: int) -> Iterator[Write]:
    """Writes the columns file, label and x0, x1, …; numbers have nine digits, so that float32 is kept exactly."""
    with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["file", "label", *(f"x{n}" for n in range(dimensions))])

        def write(piece: VectorBatch) -> None:
            labels = piece.labels or [""] * len(piece.paths)
            for name, label, vector in zip(piece.paths, labels, piece.vectors.tolist(), strict=True):
                table.writerow([name, label, *(f"{value:.9g}" for value in vector)])

        yield write
