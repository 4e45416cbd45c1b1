"""Find image files below a folder, and label them by their subfolders."""

import mimetypes
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from hypersphere.data.decode import HEIF, reads_heif
from hypersphere.data.streamed_images import StreamedImages
from hypersphere.data.worker_stream import FileReader
from hypersphere.errors import UserError
from hypersphere.util.console import notify_once
from hypersphere.util.text import printable

SUFFIXES = {
    ".jpg", ".jpeg", ".jfif", ".jpe", ".jp2", ".j2k", ".png", ".webp", ".avif", ".gif", ".tif", ".tiff", ".bmp", ".tga",
    ".ppm", ".pgm", ".pbm",
}  # fmt: skip
ARRAY = ".npy"
FILES_READ = "pass a folder of images or videos, or a .zip, .tar, .tar.gz, .parquet, .npz or .npy file"


@dataclass(frozen=True)
class Listing(StreamedImages):
    """A list of N image files, or of images in tar files, which are read when they are needed.

    Attributes:
        paths: The path of each image; for an image in a tar file, a string with its position.
        labels: Tensor of shape (N,), int64: indices into `classes`, −1 if unknown. None if there are no labels.
        classes: Names of the classes.
        closed: Folders that could not be read, with the reason.
        white: Value of white in files of more than 8 bits (None: 65535).
        bands: Number of channels to read. None: 3, and of TIFF files with more channels those that Pillow reads.
        groups: Tensor of shape (N,), int64: images of one group are all held out or none is. None if there are none.

    Example:
        >>> from pathlib import Path
        >>> files = hs.data.Listing((Path("cat.png"), Path("dog.png")), torch.tensor([0, 1]), ("cat", "dog"))
        >>> len(files), files[torch.tensor([1])].paths[0].name
        (2, 'dog.png')
    """

    paths: tuple[Path | str, ...]
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()
    closed: Mapping[Path | str, str] = field(default_factory=dict)
    white: int | None = None
    groups: Tensor | None = None
    bands: int | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Tensor) -> "Listing":
        labels, groups = (None if known is None else known[index] for known in (self.labels, self.groups))
        return replace(self, paths=tuple(self.paths[i] for i in index.tolist()), labels=labels, groups=groups)

    @property
    def reader(self) -> FileReader:
        """Reads and decodes the files by their index.

        Example:
            >>> files = hs.data.Listing(("cat.png", "dog.png"))
            >>> files.reader.name(1).name
            'dog.png'
        """
        return FileReader(self.paths, self.white, self.bands)

    def contains(self, others: "Listing") -> bool:
        """Whether the first file of `others` is in this list.

        Args:
            others: Another list, with at least one file.

        Example:
            >>> files = hs.data.Listing(("cat.png", "dog.png"))
            >>> files.contains(hs.data.Listing(("dog.png",)))
            True
        """
        return others.paths[0] in self.paths


def find_images(folder: Path) -> Listing:
    """All image files below a folder, sorted by name. Follows links, and visits each folder once."""
    if not folder.is_dir():
        if folder.is_file() and is_image(folder.name):
            raise UserError(f"{folder} is a single image: pass the folder that contains the images")
        if folder.is_file():
            raise UserError(f"{folder} is a file of a kind that is not read as images: {FILES_READ}")
        raise UserError(f"folder not found: {folder}")
    closed: dict[Path | str, str] = {}
    others: Counter[str] = Counter()
    names = sorted(_walk(folder, closed, others), key=os.fsencode)
    arrays = [name for name in names if name.suffix.lower() == ARRAY]
    if 0 < len(arrays) < len(names):  # they may be labels or embeddings
        notify_once(f"{printable(folder)}: ignored {len(arrays):,} .npy files, which are beside image files")
        names = [name for name in names if name.suffix.lower() != ARRAY]
    if others:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in others.most_common(3))
        heif = any(kind in HEIF for kind in others)
        advice = " (pip install pillow-heif to read them)" if heif else ""
        notify_once(f"{printable(folder)}: ignored images in unsupported formats: {kinds}{advice}")
    return Listing(tuple(names), closed=closed)


def folder_error(folder: Path, files: Listing) -> UserError:
    """What to say of a folder without images."""
    if files.closed:
        where, reason = next(iter(files.closed.items()))
        return UserError(f"no readable images below {folder}: cannot open {printable(where)} ({reason})")
    archives = next((kind for kind in ("*.tar", "*.zip", "*.parquet") if any(folder.glob(kind))), "")
    advice = f"; to read tar files, pass {folder / archives}" if archives == "*.tar" else ""
    if archives in ("*.zip", "*.parquet"):
        advice = f"; it has {archives.removeprefix('*')} files: pass one of them"
    return UserError(f"no images below {folder} (supported: {', '.join(sorted(SUFFIXES))}){advice}")


def _walk(folder: Path, closed: dict[Path | str, str], others: Counter[str]) -> Iterator[Path]:
    """Yield image files. Notes unreadable folders in `closed`, with a final slash, and counts unsupported images."""

    def note(error: OSError) -> None:
        closed[os.path.join(os.fsdecode(error.filename), "")] = error.strerror or type(error).__name__

    seen: set[tuple[int, int]] = set()  # visited folders, so that a link to a parent does not loop
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
    suffix = _suffix(name)
    readable = suffix in SUFFIXES or suffix == ARRAY or (suffix in HEIF and reads_heif())
    return readable and not name.startswith(".")


def _is_other_image(name: str) -> bool:
    """Whether this is an image in an unsupported format, such as .heic."""
    kind, packed = mimetypes.guess_type(name)
    return bool(kind and kind.startswith("image/")) and packed is None and not name.startswith(".")


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def labelled_below(folder: Path, files: Listing, known: Iterable[str] = ()) -> Listing:
    """Label files by the subfolders of `folder`; `known` adds classes of other splits."""
    owners = _owners(folder, files)
    classes = tuple(sorted({*known, *owners} - {""}, key=os.fsencode))
    if not all(owners) or len(classes) < 2:
        return files
    number = {name: n for n, name in enumerate(classes)}
    return replace(files, labels=torch.tensor([number[owner] for owner in owners]), classes=classes)


def classes_below(folder: Path, files: Listing) -> set[str]:
    return set(_owners(folder, files)) - {""}


def _owners(folder: Path, files: Listing) -> list[str]:
    """The subfolder of `folder` that each file is in; empty for a file directly in `folder`."""
    places = (Path(path).relative_to(folder).parts for path in files.paths)
    return [place[0] if len(place) > 1 else "" for place in places]


def deepest_folder(files: Listing) -> Path:
    """The deepest folder that contains all files; since they are sorted, the first and the last determine it."""
    return Path(os.path.commonpath([Path(path).parent for path in (files.paths[0], files.paths[-1])]))
