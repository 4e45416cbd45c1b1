"""Image files in folders named by WordNet ids: the layout of ImageNet and its subsets.

The files are JPEG as they are published; re-encoded copies, such as WebP, may take their place.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import torch

from hypersphere.data.folder import SUFFIXES, Listing
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
        found = images_in(folder / name)
        if not found:
            raise UserError(f"{folder / name} has no images: unpack the archive again")
        paths += (folder / name / file for file in found)
        counts.append(len(found))
    labels = torch.arange(len(ids)).repeat_interleave(torch.tensor(counts))
    return Listing(tuple(paths), labels, tuple(classes))


def images_in(folder: Path) -> list[str]:
    """Sorted names of the image files; empty if `folder` does not exist."""
    names = os.listdir(folder) if folder.is_dir() else []
    return sorted(name for name in names if os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith("."))
