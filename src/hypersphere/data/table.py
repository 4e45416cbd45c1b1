"""What a CSV file says of a folder's images: their labels and, if wanted, the split, or what must not be split."""

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from hypersphere.data.folder import Listing
from hypersphere.data.splits import PARTS
from hypersphere.errors import UserError
from hypersphere.util.progress import tell_once
from hypersphere.util.text import printable


class Row(NamedTuple):
    """What is said of an image; "" is nothing."""

    path: str = ""
    label: str = ""
    split: str = ""
    group: str = ""


def parts_from(table: Path, files: Listing, folder: Path, parts: Mapping[str, str] = {}) -> dict[str, Listing]:
    """By part of the split; "train" alone where neither a column says otherwise nor `parts`, by folders of these names.

    Columns: path (below the folder, or whole), label (none: −1) and, if wanted, `split` (train, val or test) and
    `group`, such as a patient: of one group all images are held out, or none."""
    rows, names = _by_place(table, folder), list(map(str, files.paths))
    if rows.keys().isdisjoint(names):  # a link may stand in the one, and where it leads to in the other
        rows, names = {os.path.realpath(name): row for name, row in rows.items()}, list(map(os.path.realpath, names))
    said = [rows.get(name, Row()) for name in names]
    classes = tuple(sorted({row.label for row in said if row.label}))
    number = {name: n for n, name in enumerate(classes)}
    labels = torch.tensor([number.get(row.label, -1) for row in said])
    if not (labels >= 0).any():
        told = f"`labels` {table} names none of the images below {folder}, such as {printable(files.paths[0])}"
        raise UserError(f"{told}: its paths must be whole, or relative to that folder")
    _check_names(table, rows, names)
    files = replace(files, labels=labels, classes=classes, groups=_groups(said))
    usual = [parts.get(Path(path).relative_to(folder).parts[0], "train") if parts else "train" for path in files.paths]
    split = [_part(row.split or part, table) for row, part in zip(said, usual, strict=True)]
    _check_groups(table, said, split)
    where = {part: [n for n, other in enumerate(split) if other == part] for part in dict.fromkeys(split)}
    if "train" not in where:
        raise UserError(f"`labels` {table}: its column split leaves no image to learn from (train)")
    return {part: files[torch.tensor(numbers)] for part, numbers in where.items()}


def _by_place(table: Path, folder: Path) -> dict[str, Row]:
    """By the whole paths of images. One may come twice if the same is said of it."""
    found: dict[str, Row] = {}
    for row in _rows(table):
        if not row.path:
            continue
        place = str(folder / row.path)
        other = found.setdefault(place, row)
        for name, one, two in zip(Row._fields[1:], other[1:], row[1:], strict=True):
            if one != two:
                told = f"{name} of {printable(place)} is {one!r} and {two!r}"
                raise UserError(f"`labels` {table}: {told}: remove a row of it")
    return found


def _rows(table: Path) -> list[Row]:
    """Without spaces around what is said. Excel begins such files with a byte-order mark."""
    try:
        with open(table, encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            columns = rows.fieldnames = [name.strip().lower() for name in rows.fieldnames or ()]
            found = [Row(*((row.get(name) or "").strip() for name in Row._fields)) for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"`labels` {table} cannot be read ({reason})") from None
    if not found or not {"path", "label"} <= set(columns):
        raise UserError(f"`labels` {table} must have the columns path and label in its first line")
    return found


def _check_names(table: Path, rows: Mapping[str, Row], images: Sequence[str]) -> None:
    """Rows that name no image are told. With a split, an image to be tested with, of which the table has another name,
    would be learnt from."""
    there = set(images)
    unknown, unnamed = [name for name in rows if name not in there], [name for name in there if name not in rows]
    if not unknown:
        return
    told = f"{len(unknown)} rows name no image, such as {printable(unknown[0])}"
    if unnamed and any(row.split for row in rows.values()):
        others = f"{len(unnamed)} images have no row, such as {printable(min(unnamed))}"
        raise UserError(f"`labels` {table} has a split, but {told}, and {others}: mend the names")
    tell_once(f"{os.path.abspath(table)}: {told}")


def _check_groups(table: Path, said: Sequence[Row], parts: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for row, part in zip(said, parts, strict=True):
        if row.group and seen.setdefault(row.group, part) != part:
            raise UserError(f"`labels` {table}: images of group {row.group!r} are in {seen[row.group]} and in {part}")


def _groups(said: Sequence[Row]) -> torch.Tensor | None:
    """Numbers of the groups; an image of none is one of its own."""
    if not any(row.group for row in said):
        return None
    names = [row.group or n for n, row in enumerate(said)]
    number = {name: n for n, name in enumerate(dict.fromkeys(names))}
    return torch.tensor([number[name] for name in names])


def _part(told: str, table: Path) -> str:
    part = PARTS.get(told.lower())
    if part is None:
        raise UserError(f"`labels` {table}: split must be train, val or test, not {told!r}")
    return part
