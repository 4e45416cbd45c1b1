"""Labels of images from a CSV file, with an optional split and optional groups that must stay together."""

import csv
import io
import os
import re
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
            or absolute) and label (empty: unknown, −1), or others of `COLUMNS`. The columns split (train, val or test)
            and group are optional. Images of one group, such as a patient, are all held out or none is.
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
    _check_values(table, classes)
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
    "group": ("group", "group_id", "patient", "patient_id", "patientid", "subject", "subject_id", "participant",
              "participant_id", "person", "person_id", "case_id", "lesion", "lesion_id"),
}  # fmt: skip
SEPARATORS = ",;\t|"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # how such files begin, as Excel writes "Unicode Text"
SHOWN = 5  # unused columns that are named


def _rows(table: Path) -> list[Row]:
    """All rows, without spaces around values. Accepts the byte-order marks that Excel writes."""
    try:
        content = table.read_bytes()
        text = content.decode("utf-16" if content.startswith(UTF_16) else "utf-8-sig")
        first = text.partition("\n")[0]
        cells = csv.reader(io.StringIO(text, newline=""), delimiter=max(SEPARATORS, key=first.count))
        rows = [(cells.line_num, [cell.strip() for cell in row]) for row in cells if any(map(str.strip, row))]
    except UnicodeDecodeError as error:
        raise UserError(f"`labels` {table} is not UTF-8 text ({error}): save it as CSV UTF-8") from None
    except (OSError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"`labels` {table} cannot be read ({reason})") from None
    header = rows[0][1] if rows else []
    places = _columns(table, header, [row for _, row in rows[1:]])
    if not rows[1:]:
        raise UserError(f"`labels` {table} has a header, but no rows: it needs at least one")
    needed = 1 + max(place for place in places[:2] if place is not None)
    for line, row in rows[1:]:
        if len(row) < needed or any(row[len(header) :]):
            wrong = f"line {line} has {pluralize(len(row), 'cell')}, but the header has {len(header)}"
            raise UserError(f"`labels` {table}: {wrong}: quote texts that contain the separator")
    return [Row(*(row[n] if n is not None and n < len(row) else "" for n in places)) for _, row in rows[1:]]


def _columns(table: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int | None]:
    """The position of the column of each field of a row; None for one that is missing.

    A column such as subject, whose name only suggests groups, is none if all rows are alike.
    """
    names = [re.sub(r"[\s-]+", "_", name.lower()) for name in header]

    def differ(name: str) -> bool:
        return len({row[names.index(name)] for row in rows if len(row) > names.index(name)}) > 1

    known = {
        **COLUMNS,
        "group": [name for name in COLUMNS["group"] if name == "group" or (name in names and differ(name))],
    }
    places = [next((names.index(name) for name in some if name in names), None) for some in known.values()]
    missing = [field for field, place in zip(("path", "label"), places, strict=False) if place is None]
    if missing:
        found = printable(", ".join(header)) or "none"
        accepted = " and ".join(f"{field} (or {', '.join(COLUMNS[field][1:])})" for field in missing)
        rename = f"rename {'them' if len(missing) > 1 else 'one'}; missing: {accepted}"
        raise UserError(f"`labels` {table} must have a header with the columns path and label, found {found}: {rename}")
    used = [
        f"{printable(header[place])} for {field}"
        for field, place in zip(COLUMNS, places, strict=True)
        if place is not None and names[place] != field
    ]
    if used:
        notify_once(f"{os.path.abspath(table)}: uses the columns {', '.join(used)}")
    if unused := [printable(name) for n, name in enumerate(header) if name and n not in places]:
        named = ", ".join(unused[:SHOWN]) + ", …" * (len(unused) > SHOWN)
        notify_once(f"{os.path.abspath(table)}: unused columns: {named}")
    return places


MANY_VALUES, MANY_DECIMALS = 100, 20  # numbers as labels that look like measured values; with decimals, fewer do


def _check_values(table: Path, classes: Sequence[str]) -> None:
    """Warn if labels look like numbers to predict."""
    try:
        decimals = any(float(name) % 1 for name in classes)
    except ValueError:
        return
    if len(classes) > (MANY_DECIMALS if decimals else MANY_VALUES):
        advice = "if they are measured values, put them into a few ranges"
        notify_once(f"{os.path.abspath(table)}: each of {len(classes):,} different numbers is a class: {advice}")


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
