"""Images in a column of parquet files, as on the Hugging Face Hub.

Rows of a parquet file cannot be read one by one. So the column of images is copied once to an Arrow file in the folder
of decoded images, which is mapped into memory.
"""

import glob
import hashlib
import json
import os
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hypersphere.data.label_table import COLUMNS
from hypersphere.data.pixel_cache import cache_folder
from hypersphere.data.splits import PARTS
from hypersphere.data.torch_datasets import IMAGE_KEYS, LABEL_KEYS
from hypersphere.errors import UserError, first_line
from hypersphere.util.console import notify, notify_once
from hypersphere.util.files import put_in_place
from hypersphere.util.free_memory import in_bytes
from hypersphere.util.optional import require

ROWS = 256  # copied at a time


class ParquetImages:
    """The rows of parquet files: an image as the content of a file, and a label if there is one.

    Args:
        file: The Arrow file that `copied` wrote.
        targets: Labels by row, numbers or strings; None if there are none.
        classes: Names of the classes, by number.
    """

    def __init__(self, file: Path, targets: np.ndarray | None, classes: Sequence[str] = ()) -> None:
        self.file, self.classes = file, classes
        if targets is not None:
            self.targets = targets

    @cached_property
    def _chunks(self) -> tuple[list[Any], np.ndarray]:
        import pyarrow as arrow  # type: ignore[import-untyped]

        with arrow.memory_map(os.fspath(self.file)) as source:
            column = arrow.ipc.open_file(source).read_all().column(0)
        return column.chunks, np.cumsum([0, *map(len, column.chunks)])

    def __len__(self) -> int:
        return int(self._chunks[1][-1])

    def __getitem__(self, row: int) -> Any:
        chunks, starts = self._chunks
        place = int(np.searchsorted(starts, row, side="right")) - 1
        return (chunks[place][row - int(starts[place])].as_py(),)  # a sample, whose first item is the image

    def __reduce__(self) -> tuple[Any, ...]:
        return ParquetImages, (self.file, getattr(self, "targets", None), self.classes)


def find_parquet(data: str) -> list[Path]:
    """The parquet files that a path, a pattern with * and ?, or a folder means."""
    if os.path.isdir(data):
        return sorted(Path(data).rglob("*.parquet"))
    return [Path(data)] if os.path.exists(data) else sorted(map(Path, glob.glob(data)))


def has_images(file: Path) -> bool:
    """Whether a parquet file has a column of images; False without pyarrow."""
    try:
        from pyarrow import parquet

        return _image_column(parquet.read_schema(file)) is not None
    except Exception:  # not installed, or not a parquet file
        return False


def read_parquet(data: str) -> dict[str, ParquetImages]:
    """The images of parquet files by split, which the names of files or their folders say, such as test-00000.parquet.

    Raises:
        UserError: If there are none, or they cannot be read.
    """
    if not (files := find_parquet(data)):
        raise UserError(f"file not found: {data}")
    pyarrow = require("pyarrow", f"{data}: .parquet")
    by_part: dict[str, list[Path]] = {}
    for file in files:
        by_part.setdefault(_part_of(file), []).append(file)
    try:
        return {part: _images_in(data, by_part[part]) for part in dict.fromkeys(PARTS.values()) if part in by_part}
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{data} cannot be read ({first_line(error)})") from None


def _part_of(file: Path) -> str:
    """The split that the first word of a file's name, or else its folder's, says; train if neither does."""
    words = (re.split(r"[-_.]", file.name.lower())[0], file.parent.name.lower())
    return next((PARTS[word] for word in words if word in PARTS), "train")


def _images_in(data: str, files: Sequence[Path]) -> ParquetImages:
    from pyarrow import concat_arrays, parquet, types

    schemas = [parquet.read_schema(file) for file in files]
    image, label = _image_column(schemas[0]), _label_column(schemas[0], types)
    if image is None:
        raise UserError(f"{data} has no column of images: found {', '.join(schemas[0].names)}")
    if strays := [file for file, schema in zip(files, schemas, strict=True) if image not in schema.names]:
        raise UserError(f"{strays[0]} has no column {image}, unlike {files[0]}")
    targets = None
    if label is not None:
        columns = [parquet.read_table(file, columns=[label]).column(0).combine_chunks() for file in files]
        targets = np.array(concat_arrays(columns).to_pylist())
    names = _features(schemas[0]).get(label or "", {}).get("names", ())
    return ParquetImages(_copied(data, files, image), targets, names)


def _features(schema: Any) -> dict[str, dict[str, Any]]:
    """What Hugging Face `datasets` writes of the columns."""
    try:
        return json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}


def _image_column(schema: Any) -> str | None:
    """The first column of bytes, or of {bytes, path}; one with the name of an image comes first."""
    from pyarrow import types

    def holds_bytes(kind: Any) -> bool:
        if types.is_struct(kind):
            return any(field.name == "bytes" and holds_bytes(field.type) for field in kind)
        return types.is_binary(kind) or types.is_large_binary(kind)

    found = [field.name for field in schema if holds_bytes(field.type)]
    return min(found, key=lambda name: name not in IMAGE_KEYS, default=None)


def _label_column(schema: Any, types: Any) -> str | None:
    plain = (types.is_integer, types.is_string, types.is_large_string)
    known = {field.name for field in schema if any(kind(field.type) for kind in plain)}
    found = next((name for name in (*LABEL_KEYS, *COLUMNS["label"]) if name in known), None)
    if found is not None and found not in LABEL_KEYS:
        notify_once(f"took the column {found} as label")
    return found


def _copied(data: str, files: Sequence[Path], column: str) -> Path:
    """The column of images in an Arrow file, which is written if it is not there."""
    import pyarrow as arrow
    from pyarrow import parquet

    digest = hashlib.sha256(column.encode())
    for file in files:
        state = os.stat(file)
        digest.update(f"{file.absolute()} {state.st_size} {state.st_mtime_ns}".encode())
    target = cache_folder() / f"{digest.hexdigest()[:32]}.arrow"
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    kind = parquet.read_schema(files[0]).field(column).type
    schema = arrow.schema([(column, kind)])
    with (
        put_in_place(target) as scratch,
        arrow.OSFile(os.fspath(scratch), "wb") as sink,
        arrow.ipc.new_file(sink, schema) as writer,
    ):
        for file in files:
            with parquet.ParquetFile(file) as source:
                for batch in source.iter_batches(batch_size=ROWS, columns=[column]):
                    writer.write_batch(arrow.record_batch([batch.column(0).cast(kind)], schema=schema))
    size = in_bytes(target.stat().st_size)
    notify(f"{data}: copied the images of {len(files)} parquet files to {target} ({size}), once")
    return target
