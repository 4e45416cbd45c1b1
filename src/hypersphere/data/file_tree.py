"""The files of a dataset below a root: in a folder, or with the paths that they have in an archive."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from hypersphere.data.folder import Listing, find_images, folder_error, is_image
from hypersphere.data.videos import SUFFIXES, check_installed, frames_of, is_video
from hypersphere.errors import UserError


class FileTree(ABC):
    """Image files below a root.

    Attributes:
        root: Paths of images are below this one. In an archive it need not exist.
    """

    root: Path

    @abstractmethod
    def folders(self) -> list[str]:
        """Names of the folders directly below the root."""

    @abstractmethod
    def images(self, below: Path) -> Listing:
        """All images below a folder, without labels, sorted by name."""

    def some_images(self, below: Path) -> Listing:
        """As `images`, but raise a UserError if there are none."""
        files = self.images(below)
        if not files.paths:
            raise folder_error(below, files)
        return files

    def stored(self, files: Listing) -> Listing:
        """The files with the names by which they are read."""
        return files


class Folder(FileTree):
    """A folder on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folders(self) -> list[str]:
        return next(os.walk(self.root), ("", [], []))[1]

    def images(self, below: Path) -> Listing:
        return find_images(below)


class ArchiveTree(FileTree):
    """The images in archives.

    If all are in one folder, such as that which was archived, this folder is the root.

    Args:
        where: The archive, for paths and messages.
        names: Path in the archive → name by which the image is read.
    """

    def __init__(self, where: Path, names: Mapping[str, Path | str]) -> None:
        images = {name: stored for name, stored in names.items() if is_image(name.rpartition("/")[2])}
        if not images:
            raise UserError(f"no images in {where}")
        common = os.path.commonpath([f"/{name.rpartition('/')[0]}" for name in images]).strip("/")
        self.root = where / common if common else where
        self.names = {where / name: stored for name, stored in images.items()}

    def folders(self) -> list[str]:
        parts = (path.relative_to(self.root).parts for path in self.names)
        return sorted({place[0] for place in parts if len(place) > 1})

    def images(self, below: Path) -> Listing:
        found = (path for path in self.names if path.is_relative_to(below))
        return Listing(tuple(sorted(found, key=os.fsencode)))

    def stored(self, files: Listing) -> Listing:
        return replace(files, paths=tuple(self.names[Path(path)] for path in files.paths))


class Videos(FileTree):
    """The videos in a folder, or a single one. The images are their frames, and each video is a group.

    Args:
        root: The folder, or the video.
        count: Frames of each video.
    """

    def __init__(self, root: Path, count: int) -> None:
        check_installed()
        self.root, self.count = root, count

    def folders(self) -> list[str]:
        return Folder(self.root).folders()

    def images(self, below: Path) -> Listing:
        if below.is_file():
            return Listing((below,))
        found = [Path(here, name) for here, _, names in os.walk(below, followlinks=True) for name in names]
        videos = [path for path in found if is_video(path.name)]
        if not videos:
            raise UserError(f"no videos below {below} (supported: {', '.join(sorted(SUFFIXES))})")
        return Listing(tuple(sorted(videos, key=os.fsencode)))

    def stored(self, files: Listing) -> Listing:
        repeated = torch.arange(len(files)).repeat_interleave(self.count)
        groups = torch.arange(len(files)) if files.groups is None else files.groups
        paths = [frame for video in files.paths for frame in frames_of(Path(video), self.count)]
        labels = None if files.labels is None else files.labels[repeated]
        return replace(files, paths=tuple(paths), labels=labels, groups=groups[repeated])
