"""JPEG files in folders named by WordNet ids, as ImageNet and its subsets have them."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import torch

from hypersphere.data.folder import Listing
from hypersphere.errors import UserError


def ids_in(folder: Path) -> tuple[str, ...]:
    """Names of the folders of classes, sorted; none where there is no such folder."""
    if not folder.is_dir():
        return ()
    return tuple(sorted(name for name in os.listdir(folder) if re.fullmatch(r"n\d{8}", name)))


def list_classes(folder: Path, ids: Sequence[str], classes: Sequence[str]) -> Listing:
    """Images in the order of the classes and of their names; a label is the place of the folder's name in `ids`."""
    paths: list[Path] = []
    counts = []
    for name in ids:
        found = jpegs_in(folder / name)
        if not found:
            raise UserError(f"{folder / name} holds no .JPEG file: unpack it again")
        paths += (folder / name / file for file in found)
        counts.append(len(found))
    labels = torch.arange(len(ids)).repeat_interleave(torch.tensor(counts))
    return Listing(tuple(paths), labels, tuple(classes))


def jpegs_in(folder: Path) -> list[str]:
    """Names of the files, sorted; none where there is no such folder."""
    names = os.listdir(folder) if folder.is_dir() else []
    return sorted(name for name in names if name.lower().endswith((".jpeg", ".jpg")) and not name.startswith("."))
