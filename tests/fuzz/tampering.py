"""Files of runs, exports and embeddings with one value changed to another type, or to a number that makes no sense."""

import copy
import io
import json
import math
import random
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

WRONG = (None, True, -1, 0, 2**63, 1e308, math.nan, math.inf, "", "x", "a\x00b", [], [[]], {}, {"a": 1}, ["x"], [None])
FOLDERS = {
    "run": ("run.json", "files.json", "metrics.jsonl", "evaluation.json", "checkpoint.pt"),
    "export": ("card.json",),
    "vectors": ("vectors.npz",),
}
_PLACES = 60  # most places of a file that are changed
_VALUES = 3  # changes of each place


class Change(NamedTuple):
    folder: str  # of FOLDERS
    file: str
    place: tuple[str | int, ...]  # keys and indices; () is the whole
    value: Any


def changes(made: Path) -> list[Change]:
    """All changes of the files in the folders `run`, `export` and `vectors` below `made`."""
    found = []
    for folder, files in FOLDERS.items():
        for file in files:
            places, draw = list(_places(_read(made / folder / file))), random.Random(file)
            for place in draw.sample(places, min(_PLACES, len(places))):
                found += [Change(folder, file, place, value) for value in draw.sample(WRONG, _VALUES)]
    return found


def apply(change: Change, made: Path, target: Path) -> Path:
    """Copy the folder of a change to `target`, and make the change there."""
    folder = shutil.copytree(made / change.folder, target / change.folder)
    record = copy.deepcopy(_read(folder / change.file))
    if change.place:
        holder = record
        for key in change.place[:-1]:
            holder = holder[key]
        holder[change.place[-1]] = change.value
    else:
        record = change.value
    _write(folder / change.file, record)
    return folder


def _places(value: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield above
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _places(part, (*above, key))
    elif isinstance(value, list):
        for place, part in enumerate(value[:2]):
            yield from _places(part, (*above, place))


def _read(file: Path) -> Any:
    if file.suffix == ".pt":
        return torch.load(file, weights_only=True)
    if file.suffix == ".npz":
        with np.load(file) as arrays:
            return json.loads(str(arrays["hypersphere"]))
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text().splitlines()]
    return json.loads(file.read_text())


def _write(file: Path, record: Any) -> None:
    if file.suffix == ".pt":
        torch.save(record, file)
    elif file.suffix == ".npz":
        with np.load(file) as arrays:
            others = {name: arrays[name] for name in arrays.files if name != "hypersphere"}
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in {**others, "hypersphere": np.array(json.dumps(record))}.items():
                content = io.BytesIO()
                np.save(content, array)
                archive.writestr(f"{name}.npy", content.getvalue())
    elif file.suffix == ".jsonl":
        lines = record if isinstance(record, list) else [record]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        file.write_text(json.dumps(record))
