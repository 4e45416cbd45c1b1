"""Labels of images from a CSV file, with an optional split and optional groups that must stay together."""

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from hypersphere.data.folder import Listing
from hypersphere.data.splits import PARTS
from hypersphere.errors import UserError
from hypersphere.util.console import notify_once, pluralize
from hypersphere.util.text import printable


class Row(NamedTuple):
    """A row of the CSV file; an empty string is a missing value."""

    path: str = ""
    label: str = ""
    split: str = ""
    group: str = ""


def parts_from(
    table: Path, files: Listing, folder: Path, parts: Mapping[str, str] = {}, names: Sequence[str] = ()
) -> dict[str, Listing]:
    """Read labels, split and groups of the files from a CSV file.

    Args:
        table: The CSV file, separated by commas, semicolons or tabs. It has the columns path (relative to the folder,
            or absolute) and label (empty: unknown, −1), or others of `COLUMNS`. The column split (train, val or test)
            and the column group are optional. Images of one group, such as a patient, are all held out or none is.
        files: The image files below the folder.
        folder: The folder.
        parts: Subfolder of `folder` → split of its images, if the column split does not give one.
        names: Name of each file in the column path, relative to `folder`. By default the files' own paths.

    Returns:
        The labelled files of each split; only "train" if neither the column split nor `parts` says otherwise.

    Raises:
        UserError: If the table cannot be read, does not match the files, or contradicts itself.
    """
    names = [str(folder / name) for name in names or files.paths]
    example = printable(names[0])
    rows, names = _matching(_by_place(table, folder), names)
    matched = [rows.get(name, Row()) for name in names]
    classes = tuple(sorted({row.label for row in matched if row.label}))
    number = {name: n for n, name in enumerate(classes)}
    labels = torch.tensor([number.get(row.label, -1) for row in matched])
    if not (labels >= 0).any():
        problem = f"`labels` {table} names none of the images, such as {example}"
        raise UserError(f"{problem}: use absolute paths, or paths relative to the folder; in tar files, member names")
    _check_names(table, rows, names)
    files = replace(files, labels=labels, classes=classes, groups=_groups(matched))
    default = [
        parts.get(Path(path).relative_to(folder).parts[0], "train") if parts else "train" for path in files.paths
    ]
    split = [_part(row.split or part, table) for row, part in zip(matched, default, strict=True)]
    _check_groups(table, matched, split)
    indices = {part: [n for n, other in enumerate(split) if other == part] for part in dict.fromkeys(split)}
    if "train" not in indices:
        raise UserError(f"`labels` {table}: its column split has no training images: set some rows to train")
    return {part: files[torch.tensor(numbers)] for part, numbers in indices.items()}


def _matching(rows: dict[str, Row], names: list[str]) -> tuple[dict[str, Row], list[str]]:
    """Rows and images by the first key under which they have an image in common.

    After the path itself these are its target, since one may name a symbolic link; the path or the name without the
    suffix, as in tables with an id; and the name alone. Keys that two images share are left out.
    """
    for key in KEYS:
        keys = [key(name) for name in names]
        if len({*keys}) == len(keys) and not rows.keys().isdisjoint(keys):
            return rows, keys
        by_key = {key(name): row for name, row in rows.items()}
        if len({*keys}) == len(keys) and len(by_key) == len(rows) and not by_key.keys().isdisjoint(keys):
            return by_key, keys
    return rows, names


KEYS: tuple[Callable[[str], str], ...] = (
    str,
    os.path.realpath,
    lambda name: os.path.splitext(name)[0],
    os.path.basename,
    lambda name: os.path.splitext(os.path.basename(name))[0],
)


def _by_place(table: Path, folder: Path) -> dict[str, Row]:
    """Rows by the absolute path of the image. Rows of one image must agree."""
    found: dict[str, Row] = {}
    for row in _rows(table):
        if not row.path:
            continue
        place = str(folder / row.path)
        other = found.setdefault(place, row)
        for name, one, two in zip(Row._fields[1:], other[1:], row[1:], strict=True):
            if one != two:
                conflict = f"two rows of {printable(place)} differ in {name}, {one!r} and {two!r}"
                raise UserError(f"`labels` {table}: {conflict}: remove one of them")
    return found


# field of a row → names of its column, the preferred one first
COLUMNS = {
    "path": ("path", "filename", "file_name", "file", "filepath", "file_path", "image_path", "image", "img", "name",
             "image_name", "image_id", "id"),
    "label": ("label", "class", "target", "category", "labels", "class_name", "label_name", "y"),
    "split": ("split", "set", "subset", "partition"),
    "group": ("group",),
}  # fmt: skip
SEPARATORS = ",;\t|"


def _rows(table: Path) -> list[Row]:
    """All rows, without spaces around values. Accepts the byte-order mark that Excel writes."""
    try:
        with open(table, encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            rows = csv.DictReader(file, delimiter=max(SEPARATORS, key=first.count))
            names = rows.fieldnames = [name.strip().lower() for name in rows.fieldnames or ()]
            columns = _columns(table, names)
            found = [Row(*((row.get(name) or "").strip() for name in columns)) for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"`labels` {table} cannot be read ({reason})") from None
    if not found:
        raise UserError(f"`labels` {table} has a header, but no rows: it needs at least one")
    return found


def _columns(table: Path, names: Sequence[str]) -> list[str]:
    """The column of each field of a row; an empty name for one that is missing."""
    columns = [next((name for name in known if name in names), "") for known in COLUMNS.values()]
    if not all(columns[:2]):
        found = ", ".join(names) or "none"
        wanted = "a header with the columns path and label"
        raise UserError(f"`labels` {table} must have {wanted}, found {printable(found)}: rename them")
    used = [f"{column} as {field}" for field, column in zip(COLUMNS, columns, strict=True) if column not in ("", field)]
    if used:
        notify_once(f"{os.path.abspath(table)}: took the columns {' and '.join(used)}")
    return columns


def _check_names(table: Path, rows: Mapping[str, Row], images: Sequence[str]) -> None:
    """Report rows that match no image.

    If the table has a split, they are an error: a misspelled test image would be trained on.
    """
    known = set(images)
    unknown, unnamed = [name for name in rows if name not in known], [name for name in known if name not in rows]
    if not unknown:
        return
    unmatched = f"{pluralize(len(unknown), 'row')} without an image, such as {printable(unknown[0])}"
    if unnamed and any(row.split for row in rows.values()):
        others = f"{pluralize(len(unnamed), 'image')} without a row, such as {printable(min(unnamed))}"
        raise UserError(f"`labels` {table} has a split, but also {unmatched}, and {others}: correct the paths")
    notify_once(f"{os.path.abspath(table)}: {unmatched}")


def _check_groups(table: Path, rows: Sequence[Row], parts: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for row, part in zip(rows, parts, strict=True):
        if row.group and seen.setdefault(row.group, part) != part:
            both = f"{seen[row.group]} and {part}"
            raise UserError(f"`labels` {table}: group {row.group!r} is in both {both}: keep each group in one split")


def _groups(rows: Sequence[Row]) -> torch.Tensor | None:
    """The group number of each image; an image without a group is a group of its own."""
    if not any(row.group for row in rows):
        return None
    names = [row.group or n for n, row in enumerate(rows)]
    number = {name: n for n, name in enumerate(dict.fromkeys(names))}
    return torch.tensor([number[name] for name in names])


def _part(name: str, table: Path) -> str:
    part = PARTS.get(name.lower())
    if part is None:
        raise UserError(f"`labels` {table}: split must be train, val or test, got {name!r}")
    return part
