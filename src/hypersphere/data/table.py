"""What a CSV file says of a folder's images: their labels and, if wanted, the split, or what must not be split."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from hypersphere.data.folder import Listing, shown
from hypersphere.data.splits import PARTS
from hypersphere.errors import UserError


def parts_from(table: Path, files: Listing, folder: Path) -> dict[str, Listing]:
    """By part of the split, "train" alone where the file has no column `split`; what it does not name is learnt from.

    Columns: path (below the folder, or whole), label (−1 where there is none) and, if wanted, `split` (train, val or
    test) and `group`, such as a patient: of one group all images are held out, or none."""
    rows = {str(folder / row["path"]): row for row in _rows(table) if row["path"]}
    said = [rows.get(str(path), {}) for path in files.paths]
    classes = tuple(sorted({row["label"] for row in rows.values() if row["label"]}))
    number = {name: n for n, name in enumerate(classes)}
    labels = torch.tensor([number.get(row.get("label") or "", -1) for row in said])
    if not (labels >= 0).any():
        told = f"`labels` {table} names none of the images below {folder}, such as {shown(files.paths[0])}"
        raise UserError(f"{told}: its paths must be whole, or relative to that folder")
    files = replace(files, labels=labels, classes=classes, groups=_groups(said))
    parts = [_part(row, table) for row in said]
    where = {part: [n for n, other in enumerate(parts) if other == part] for part in dict.fromkeys(parts)}
    if "train" not in where:
        raise UserError(f"`labels` {table}: its column split leaves no image to learn from (train)")
    return {part: files[torch.tensor(numbers)] for part, numbers in where.items()}


def _rows(table: Path) -> list[dict[str, str]]:
    """Excel begins such files with a byte-order mark."""
    try:
        with open(table, encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"`labels` {table} cannot be read ({reason})") from None
    if not rows or not {"path", "label"} <= rows[0].keys():
        raise UserError(f"`labels` {table} must have the columns path and label in its first line")
    return rows


def _groups(said: Sequence[Mapping[str, str]]) -> torch.Tensor | None:
    """Numbers of the groups; an image of none is one of its own."""
    if not any(row.get("group") for row in said):
        return None
    names = [row.get("group") or n for n, row in enumerate(said)]
    number = {name: n for n, name in enumerate(dict.fromkeys(names))}
    return torch.tensor([number[name] for name in names])


def _part(row: Mapping[str, str], table: Path) -> str:
    told = (row.get("split") or "train").strip()
    if told.lower() not in PARTS:
        raise UserError(f"`labels` {table}: split must be train, val or test, not {told!r}")
    return PARTS[told.lower()]
