"""JPEG files in folders named by WordNet ids: the layout of ImageNet and its subsets."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import torch

from hypersphere.data.folder import Listing
from hypersphere.errors import UserError


def ids_in(folder: Path) -> tuple[str, ...]:
    """Sorted names of the class folders; empty if `folder` does not exist."""
    if not folder.is_dir():
        return ()
    return tuple(sorted(name for name in os.listdir(folder) if re.fullmatch(r"n\d{8}", name)))


def list_classes(folder: Path, ids: Sequence[str], classes: Sequence[str]) -> Listing:
    """Images sorted by class and name; a label is the index of the folder's name in `ids`."""
    paths: list[Path] = []
    counts = []
    for name in ids:
        found = jpegs_in(folder / name)
        if not found:
            raise UserError(f"{folder / name} has no .JPEG files: unpack the archive again")
        paths += (folder / name / file for file in found)
        counts.append(len(found))
    labels = torch.arange(len(ids)).repeat_interleave(torch.tensor(counts))
    return Listing(tuple(paths), labels, tuple(classes))


def jpegs_in(folder: Path) -> list[str]:
    """Sorted names of the JPEG files; empty if `folder` does not exist."""
    names = os.listdir(folder) if folder.is_dir() else []
    return sorted(name for name in names if name.lower().endswith((".jpeg", ".jpg")) and not name.startswith("."))
