"""Image files below a folder: which there are, and what their folders say about them."""

import mimetypes
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from hypersphere.data.stream import FileReader
from hypersphere.data.streamed import StreamedImages
from hypersphere.errors import UserError
from hypersphere.util.progress import tell_once
from hypersphere.util.text import printable

SUFFIXES = {
    ".jpg", ".jpeg", ".jfif", ".jpe", ".jp2", ".j2k", ".png", ".webp", ".avif", ".gif", ".tif", ".tiff", ".bmp", ".tga",
    ".ppm", ".pgm", ".pbm",
}  # fmt: skip


@dataclass(frozen=True)
class Listing(StreamedImages):
    """Image files, or members of tar files as `shards` names them.

    Attributes:
        paths: One for each image.
        labels: Tensor of shape (N,), int64: indices into `classes`, −1 if unknown. None if there are no labels.
        classes: Names of the classes.
        closed: Folders that could not be read, and why.
        white: Value of white in 16-bit files (None: 65535).
        groups: Tensor of shape (N,), int64: images of one group are never split.
    """

    paths: tuple[Path | str, ...]
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()
    closed: Mapping[Path | str, str] = field(default_factory=dict)
    white: int | None = None
    groups: Tensor | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Tensor) -> "Listing":
        labels, groups = (None if known is None else known[index] for known in (self.labels, self.groups))
        return replace(self, paths=tuple(self.paths[i] for i in index.tolist()), labels=labels, groups=groups)

    @property
    def reader(self) -> FileReader:
        return FileReader(self.paths, self.white)

    def contains(self, others: "Listing") -> bool:
        return others.paths[0] in self.paths


def find_images(folder: Path) -> Listing:
    """All image files below, through links, each folder once; in the order of their names."""
    if not folder.is_dir():
        is_file = folder.is_file()
        raise UserError(f"{folder} is {'a file: give the folder that holds the images' if is_file else 'no folder'}")
    closed: dict[Path | str, str] = {}
    others: Counter[str] = Counter()
    found = Listing(tuple(sorted(_walk(folder, closed, others), key=os.fsencode)), closed=closed)
    if others:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in others.most_common(3))
        tell_once(f"{printable(folder)}: images of kinds that are not read: {kinds}")
    return found


def some_images(folder: Path) -> Listing:
    """The same, where there is one at least."""
    files = find_images(folder)
    if files.closed and not files.paths:
        where, reason = next(iter(files.closed.items()))
        raise UserError(f"no image below {folder} can be read: {printable(where)} could not be opened ({reason})")
    if not files.paths:
        tars = "; tar files are given by name: " + str(folder / "*.tar") if any(folder.glob("*.tar")) else ""
        raise UserError(f"there is no image below {folder} (of the kinds {', '.join(sorted(SUFFIXES))}){tars}")
    return files


def _walk(folder: Path, closed: dict[Path | str, str], others: Counter[str]) -> Iterator[Path]:
    """Folders that cannot be read are noted in `closed`, by names that end in a slash; images of other kinds are
    counted."""

    def note(error: OSError) -> None:
        closed[os.path.join(os.fsdecode(error.filename), "")] = error.strerror or type(error).__name__

    seen: set[tuple[int, int]] = set()  # folders, so that a link to one above ends
    for here, below, files in os.walk(folder, onerror=note, followlinks=True):
        about = os.stat(here)
        if (about.st_dev, about.st_ino) in seen:
            below.clear()
            continue
        seen.add((about.st_dev, about.st_ino))
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in files:
            if is_image(name):
                yield Path(here, name)
            elif _is_other_image(name):
                others[_suffix(name)] += 1


def is_image(name: str) -> bool:
    return _suffix(name) in SUFFIXES and not name.startswith(".")


def _is_other_image(name: str) -> bool:
    """Of a kind like .heic."""
    kind, packed = mimetypes.guess_type(name)
    return bool(kind and kind.startswith("image/")) and packed is None and not name.startswith(".")


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def list_folder(folder: Path) -> Listing:
    """With labels where every image lies in one of several folders, which are then its classes."""
    return labelled_below(folder, some_images(folder))


def labelled_below(folder: Path, files: Listing, known: Iterable[str] = ()) -> Listing:
    """`known`: classes that there are elsewhere."""
    owners = _owners(folder, files)
    classes = tuple(sorted({*known, *owners} - {""}, key=os.fsencode))
    if not all(owners) or len(classes) < 2:
        return files
    number = {name: n for n, name in enumerate(classes)}
    return replace(files, labels=torch.tensor([number[owner] for owner in owners]), classes=classes)


def classes_below(folder: Path, files: Listing) -> set[str]:
    return set(_owners(folder, files)) - {""}


def _owners(folder: Path, files: Listing) -> list[str]:
    """Of each file the folder below `folder` that it lies in, or no name."""
    places = (Path(path).relative_to(folder).parts for path in files.paths)
    return [place[0] if len(place) > 1 else "" for place in places]


def deepest_folder(files: Listing) -> Path:
    """That holds them all: what the first and the last have in common, so have those between, in the order of names."""
    return Path(os.path.commonpath([Path(path).parent for path in (files.paths[0], files.paths[-1])]))
