"""Files of embeddings, .parquet or .npz: the path and the vector of each image, and what made them. Written and read in
pieces, so that any number of them fits.

A name of a file need not be text. In .parquet the column `path` then shows what is not UTF-8 as �, and a column
`path_bytes` has the name itself (null where `path` is already that). In .npz such bytes are the surrogates that
`os.fsencode` understands.
"""

import contextlib
import io
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np

from hypersphere.errors import UserError, first_line
from hypersphere.util.files import check_file

ABOUT = "hypersphere"  # the key, or the array, that says in JSON what made the vectors
PIECE = 2**24  # bytes of vectors written or read at once
# what libraries say of files that are broken, or of another kind
_BROKEN = (OSError, ValueError, LookupError, AttributeError, EOFError, RuntimeError, TypeError, zipfile.BadZipFile)
NOT_OURS = "is no file of embeddings that hypersphere embed wrote"


class Piece(NamedTuple):
    paths: Sequence[str]  # as `os.fsdecode` has them
    vectors: np.ndarray  # N × D, float32


@dataclass(frozen=True)
class Vectors:
    """What a file holds: what made it, and its rows, a piece at a time."""

    about: dict[str, Any]
    dimensions: int
    pieces: Callable[[], Iterator[Piece]]


class Writer(Protocol):
    def write(self, piece: Piece) -> None: ...
    def finish(self) -> None: ...
    def discard(self) -> None: ...


def check_output(path: Path) -> None:
    """Before anything is computed."""
    if path.suffix not in _KINDS:
        raise UserError(f"`out` {path} must end in {' or '.join(_KINDS)}")
    check_file(path, "out")
    if path.suffix == ".parquet":
        _arrow(path)


def writer(scratch: Path, kind: str, dimensions: int, about: dict[str, Any], names_are_text: bool) -> Writer:
    """`kind`: the suffix of the file that the scratch file will be."""
    return _KINDS[kind][0](scratch, dimensions, about, names_are_text)


def read_vectors(path: Path) -> Vectors:
    if path.suffix not in _KINDS or not path.is_file():
        there = f"{path} {NOT_OURS} ({' or '.join(_KINDS)})" if path.exists() else f"there is no file {path}"
        raise UserError(there)
    try:
        found = _KINDS[path.suffix][1](path)
        missing = {"encoder", "weights", "preprocess", "cwd"} - found.about.keys()
    except _BROKEN as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} {NOT_OURS}") from None
    if missing:
        raise UserError(f"{path} {NOT_OURS}: it does not say its {', '.join(sorted(missing))}")
    return replace(found, pieces=lambda: _whole(path, found.pieces()))


def _whole(path: Path, pieces: Iterator[Piece]) -> Iterator[Piece]:
    try:
        yield from pieces
    except _BROKEN as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is damaged ({first_line(error)}): embed the images again") from None


def rows_at_once(dimensions: int) -> int:
    return max(1, PIECE // (4 * dimensions))


def is_text(name: str) -> bool:
    """Can it be written as UTF-8?"""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _arrow(path: Path) -> Any:
    try:
        import pyarrow  # type: ignore[import-untyped]
    except ImportError:
        raise UserError(f"{path}: .parquet needs pyarrow: pip install 'hypersphere[parquet]', or use .npz") from None
    return pyarrow


class _ParquetWriter:
    """A row group for each piece."""

    def __init__(self, path: Path, dimensions: int, about: dict[str, Any], names_are_text: bool) -> None:
        arrow = self.arrow = _arrow(path)
        from pyarrow import parquet

        fields = [("path", arrow.string()), ("vector", arrow.list_(arrow.float32(), dimensions))]
        fields += [] if names_are_text else [("path_bytes", arrow.binary())]
        self.schema = arrow.schema(fields, metadata={ABOUT: json.dumps(about)})
        self.dimensions = dimensions
        self.file = open(path, "wb")  # noqa: SIM115
        self.writer = parquet.ParquetWriter(self.file, self.schema, compression="zstd", use_dictionary=False)

    def write(self, piece: Piece) -> None:
        shown = [os.fsencode(name).decode("utf-8", "replace") for name in piece.paths]
        flat = self.arrow.array(np.ascontiguousarray(piece.vectors, np.float32).ravel())
        columns = [self.arrow.array(shown), self.arrow.FixedSizeListArray.from_arrays(flat, self.dimensions)]
        if "path_bytes" in self.schema.names:
            raw = [None if is_text(name) else os.fsencode(name) for name in piece.paths]
            columns.append(self.arrow.array(raw, self.arrow.binary()))
        self.writer.write_batch(self.arrow.record_batch(columns, schema=self.schema))

    def finish(self) -> None:
        self.writer.close()
        self.file.close()

    def discard(self) -> None:
        with contextlib.suppress(Exception):  # of whatever made it be discarded
            self.writer.close()
        with contextlib.suppress(OSError):
            self.file.close()


def _read_parquet(path: Path) -> Vectors:
    _arrow(path)
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
    about = json.loads((schema.metadata or {})[ABOUT.encode()])
    dimensions = schema.field("vector").type.list_size
    columns = [name for name in ("path", "vector", "path_bytes") if name in schema.names]

    def pieces() -> Iterator[Piece]:
        with parquet.ParquetFile(path, pre_buffer=False) as file:  # which would keep all that was read
            for part in file.iter_batches(batch_size=rows_at_once(dimensions), columns=columns):
                names = part.column("path").to_pylist()
                if "path_bytes" in columns:
                    raw = part.column("path_bytes").to_pylist()
                    names = [
                        name if exact is None else os.fsdecode(exact) for name, exact in zip(names, raw, strict=True)
                    ]
                vectors = part.column("vector").flatten().to_numpy(zero_copy_only=False)
                yield Piece(names, vectors.reshape(len(names), dimensions))

    return Vectors(about, dimensions, pieces)


class _NpzWriter:
    """An array's head says how long it is, which is known at the end: until then rows go to files without a name."""

    def __init__(self, path: Path, dimensions: int, about: dict[str, Any], names_are_text: bool) -> None:
        self.path, self.dimensions, self.about = path, dimensions, about
        path.touch()  # a mistake in its name is told now
        self.vectors, self.names = (tempfile.TemporaryFile(dir=path.parent) for _ in range(2))  # noqa: SIM115
        self.rows, self.longest = 0, 1

    def write(self, piece: Piece) -> None:
        self.vectors.write(np.asarray(piece.vectors, "<f4").tobytes())
        self.names.write(b"".join(os.fsencode(name) + b"\0" for name in piece.paths))
        self.rows += len(piece.paths)
        self.longest = max(self.longest, *map(len, piece.paths))

    def finish(self) -> None:
        """Members are `ZipInfo`s, which have no time of their own: the same vectors are the same bytes."""
        with zipfile.ZipFile(self.path, "w") as archive:
            about = io.BytesIO()
            np.save(about, np.array(json.dumps(self.about)))
            archive.writestr(zipfile.ZipInfo(f"{ABOUT}.npy"), about.getvalue())
            with archive.open(zipfile.ZipInfo("vector.npy"), "w", force_zip64=True) as member:
                _write_head(member, (self.rows, self.dimensions), np.dtype("<f4"))
                self.vectors.seek(0)
                shutil.copyfileobj(self.vectors, member, PIECE)
            with archive.open(zipfile.ZipInfo("path.npy"), "w", force_zip64=True) as member:
                kind = np.dtype(f"<U{self.longest}")
                _write_head(member, (self.rows,), kind)
                for names in self._named():
                    member.write(np.array(names, kind).tobytes())
        self.discard()

    def _named(self) -> Iterator[list[str]]:
        """The names again, some at a time."""
        self.names.seek(0)
        rest = b""
        while block := self.names.read(2**20):
            *whole, rest = (rest + block).split(b"\0")
            yield [os.fsdecode(name) for name in whole]

    def discard(self) -> None:
        self.vectors.close()
        self.names.close()


def _write_head(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype) -> None:
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})


def _read_head(file: Any, kind: str, dimensions: int) -> tuple[tuple[int, ...], np.dtype]:
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("of another version")
    shape, by_column, dtype = np.lib.format.read_array_header_1_0(file)
    if by_column or dtype.kind != kind or len(shape) != dimensions:
        raise ValueError("of another kind")
    return shape, dtype


def _read_npz(path: Path) -> Vectors:
    with zipfile.ZipFile(path) as archive:
        about = json.loads(str(np.load(io.BytesIO(archive.read(f"{ABOUT}.npy")), allow_pickle=False)))
        with archive.open("vector.npy") as vectors, archive.open("path.npy") as names:
            (rows, dimensions), number = _read_head(vectors, "f", 2)
            (named,), text = _read_head(names, "U", 1)
    if rows != named:
        raise ValueError("as many vectors as paths are wanted")

    def pieces() -> Iterator[Piece]:
        step = rows_at_once(dimensions)
        with (
            zipfile.ZipFile(path) as archive,
            archive.open("vector.npy") as vectors,
            archive.open("path.npy") as names,
        ):
            _read_head(vectors, "f", 2)
            _read_head(names, "U", 1)
            for first in range(0, rows, step):
                count = min(step, rows - first)
                block = np.frombuffer(vectors.read(count * dimensions * number.itemsize), number)
                called = np.frombuffer(names.read(count * text.itemsize), text).tolist()
                yield Piece(called, block.reshape(count, dimensions))

    return Vectors(about, dimensions, pieces)


_KINDS: dict[str, tuple[Callable[..., Writer], Callable[[Path], Vectors]]] = {
    ".parquet": (_ParquetWriter, _read_parquet),
    ".npz": (_NpzWriter, _read_npz),
}
