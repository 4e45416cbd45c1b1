"""Files of predictions: columns of texts and numbers, as .csv or .parquet, written in pieces."""

import contextlib
import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from hypersphere.inference.embedding_files import as_text, check_output
from hypersphere.util.files import put_in_place

KINDS = (".csv", ".parquet")
ROWS = 8192  # in a row group of a .parquet file

Columns = Mapping[str, Sequence[str] | Sequence[float]]


class Table(Protocol):
    """A table that is being written."""

    def write(self, columns: Columns) -> None:
        """Add rows, given by column. All calls have the same columns."""


@contextlib.contextmanager
def open_table(out: Path | None) -> Iterator[Table]:
    """A table that is put in place at the end.

    Args:
        out: The file, .csv or .parquet. None: print CSV.

    Raises:
        UserError: If there cannot be such a file.
    """
    if out is None:
        yield _CsvTable(sys.stdout)
        return
    check_output(out, KINDS)
    with put_in_place(out, alone=True) as scratch:
        if out.suffix == ".csv":
            with open(scratch, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
                yield _CsvTable(file)
        else:
            with contextlib.closing(_ParquetTable(scratch)) as table:
                yield table


class _CsvTable:
    """Numbers have six decimals."""

    def __init__(self, file: IO[str]) -> None:
        self.table, self.begun = csv.writer(file, lineterminator="\n"), False

    def write(self, columns: Columns) -> None:
        if not self.begun:
            self.table.writerow(columns)
            self.begun = True
        for row in zip(*columns.values(), strict=True):
            self.table.writerow([f"{cell:.6f}" if isinstance(cell, float) else cell for cell in row])


class _ParquetTable:
    """Texts that are not valid UTF-8 have � for other bytes."""

    def __init__(self, path: Path) -> None:
        self.path, self.waiting, self.rows = path, list[Any](), 0
        self.writer: Any = None

    def write(self, columns: Columns) -> None:
        import pyarrow  # type: ignore[import-untyped]

        valid = {name: [as_text(x) if isinstance(x, str) else x for x in cells] for name, cells in columns.items()}
        self.waiting.append(pyarrow.table({as_text(name): cells for name, cells in valid.items()}))
        self.rows += len(self.waiting[-1])
        if self.rows >= ROWS:
            self._flush()

    def _flush(self) -> None:
        import pyarrow
        from pyarrow import parquet

        whole = pyarrow.concat_tables(self.waiting)
        if self.writer is None:
            self.writer = parquet.ParquetWriter(self.path, whole.schema, compression="zstd")
        self.writer.write_table(whole)
        self.waiting, self.rows = [], 0

    def close(self) -> None:
        if self.waiting:
            self._flush()
        if self.writer is not None:
            self.writer.close()
