"""Datasets of image files: folders and tar files, and the lists of files that a run keeps."""

import hashlib
import os
import posixpath
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import torch

from hypersphere.data.compressed_tar import decompressed
from hypersphere.data.dataset import Dataset, Hints, Split, Unreadable
from hypersphere.data.file_tree import ArchiveTree, FileTree, Folder, Videos
from hypersphere.data.folder import Listing, classes_below, deepest_folder, is_image, labelled_below
from hypersphere.data.label_table import parts_from
from hypersphere.data.options import Holdout
from hypersphere.data.splits import PARTS, held_out_of, test_of
from hypersphere.data.survey import Survey, survey
from hypersphere.data.tar_files import list_shards
from hypersphere.data.tar_members import MEMBER, container_of, exists, file_or_member
from hypersphere.data.zip_files import names_in
from hypersphere.errors import UserError, path_errors_as_user_errors
from hypersphere.util.console import notify_once, pluralize
from hypersphere.util.files import write_json
from hypersphere.util.records import read_record
from hypersphere.util.text import printable
from hypersphere.util.trust import remember_own_file

FILES = "files.json"  # in a run's folder: names and labels of its image files
FEW_LETTERS = 60  # class names are printed if they are no longer than this
UNLABELLED = ("unlabeled", "unlabelled")  # folders of unlabelled training images, next to those of a split


class ListedDataset(Dataset):
    """Base class of datasets of files, whose lists a run keeps in its folder."""

    def split_of_job(self, holdout: Holdout, run: Path | None = None) -> Split:
        from hypersphere.distributed.collectives import result_of_first

        return result_of_first(lambda: self.split(holdout, run))

    def save_lists(self, folder: Path, split: Split) -> None:
        if not (folder / FILES).is_file():
            save_files(folder / FILES, split.train, split.held_out)


class FileDataset(ListedDataset):
    """Base class of folders and tar files."""

    ignored = frozenset({"frames"})
    test_wanted = "folders train and test (or val), or a column split in `labels`"
    group = "group"  # what images have in common that are not split

    @abstractmethod
    def find(self) -> dict[str, Listing]:
        """The training files as "train"; also "val" and "test" if the source has them."""

    @cached_property
    def parts(self) -> dict[str, Listing]:
        return self.find()

    @cached_property
    def found(self) -> Survey:
        return survey(self.parts["train"], self.options.white)

    def split(self, holdout: Holdout, run: Path | None = None) -> Split:
        channels = self._channels(run if holdout == self.options.holdout else None)
        lists = self._lists(holdout, run)
        return Split(*(replace(files, white=self.options.white, bands=channels) for files in lists))

    def _channels(self, run: Path | None) -> int | None:
        """The number of channels to read; None for runs of earlier versions, which read what Pillow reads."""
        if run is not None and (run / FILES).is_file() and not saved_channels(run / FILES):
            return len(self.options.mean) or None
        return len(self.options.mean) or 3

    def _lists(self, holdout: Holdout, run: Path | None) -> tuple[Listing, Listing]:
        known = run is not None and holdout == self.options.holdout
        if run is not None and known and (run / FILES).is_file():
            return self.found_again(run, *saved_files(run / FILES))
        if run is not None and self.options.root is not None:
            return type(self)(self.relocated()[0], self.options)._lists(holdout, None)
        train = self.parts["train"]
        if holdout == "test":
            return train, test_of(self.parts, self.name, self.test_wanted)
        if "val" in self.parts:
            return train, self.parts["val"]
        rest, held_out = held_out_of(train.labels, len(train), train.groups)
        return train[rest], train[held_out]

    def found_again(self, run: Path, train: Listing, held_out: Listing) -> tuple[Listing, Listing]:
        """The saved files of a run, at their present location: moved to `root` if it is given.

        Raises:
            UserError: If none of the training images exists.
        """
        root = self.options.root
        if root is not None:
            train, held_out = (self.moved(files, Path(os.path.abspath(root))) for files in (train, held_out))
        if not _any_there(train.paths):
            missing = f"none of its {len(train)} images exists, such as {printable(train.paths[0])}"
            if root is not None:
                raise UserError(f"{run}: `root` {root} is not the new location of {self.name}: {missing}")
            raise UserError(f"{run}: {missing}; if {self.name} has moved, pass its new location as `root`")
        return train, held_out

    def moved(self, files: Listing, root: Path) -> Listing:
        """The same files below another folder, or in another archive."""
        now = (f"{root}{str(path).removeprefix(self.name)}" for path in files.paths)
        return replace(files, paths=tuple(map(file_or_member, now)))

    def takes_root(self, begun: bool) -> bool:
        return begun

    def needs_root(self, run: Path) -> bool:
        """True only if none of the run's images exists any more."""
        known = saved_files(run / FILES)[0].paths if (run / FILES).is_file() else (Path(self.name),)
        return self.takes_root(begun=True) and not any(map(exists, known))

    def relocated(self) -> tuple[str, Path | None]:
        root = self.options.root
        return (self.name, None) if root is None else (os.path.abspath(root), None)

    def check_present(self, owner: Path) -> None:
        if self.options.root is None and not Path(self.name).exists():
            advice = "pass its new location as `root`, or other images as `data`"
            raise UserError(f"{self.name}, on which {owner} was trained, does not exist: {advice}")

    def summary(self) -> str:
        train = self.parts["train"]
        if len(train) < 2:
            raise UserError(f"{self.name} has only one image: training needs at least two")
        groups = "" if train.groups is None else f"; {pluralize(len(train.groups.unique()), self.group)}, never split"
        closed = f"; {pluralize(len(train.closed), 'folder')} could not be read" if train.closed else ""
        labels = f"{classes_in_words(train)}{groups}{others_in_words(self.parts)}"
        return f"{self.name}: {self.found}; {labels}{self.hint(train)}{closed}"

    def warning(self) -> str:
        return self.found.warning and f"{self.name}: {self.found.warning}"

    def hint(self, train: Listing) -> str:
        """Advice if the user may have meant other data."""
        return ""

    def recipe_hints(self) -> Hints:
        return Hints(self.found.images, self.found.sides[1], self.found.channels)

    def edition(self) -> str:
        digest = hashlib.sha256()
        for part, files in self.parts.items():
            digest.update(b"\0".join(map(os.fsencode, (part, *files.classes, *files.paths))))
            for numbers in (files.labels, files.groups):
                digest.update(b"" if numbers is None else numbers.numpy().tobytes())
        return digest.hexdigest()[:8]

    def unreadable_folders(self, split: Split) -> Unreadable:
        return {**split.train.closed, **split.held_out.closed}


class TreeDataset(FileDataset):
    """Image files below a root, whose subfolders are splits or classes."""

    @abstractmethod
    def tree(self) -> FileTree:
        """The files."""

    def find(self) -> dict[str, Listing]:
        tree, labels = self.tree(), self.options.labels
        return {part: tree.stored(files) for part, files in parts_of_tree(tree, labels).items()}

    def everything(self) -> dict[str, Listing]:
        tree = self.tree()
        return {"": tree.stored(with_classes(tree, tree.some_images(tree.root)))}

    def check(self) -> None:
        self.parts  # noqa: B018


class FolderDataset(TreeDataset):
    """Image files in a folder."""

    def tree(self) -> FileTree:
        return Folder(Path(self.name))

    def everything(self) -> dict[str, Listing]:
        if os.path.isfile(self.name) and is_image(os.path.basename(self.name)):
            return {"": Listing((Path(self.name),))}
        return super().everything()

    def hint(self, train: Listing) -> str:
        """If all images are in one subfolder, its own subfolders may be classes."""
        if train.classes or (deepest := deepest_folder(train)) == Path(self.name):
            return ""
        classes = labelled_below(deepest, train).classes
        if not classes:
            return ""
        return f"; the {len(classes)} folders in {printable(deepest)} look like classes: pass that folder to use them"


class ZipDataset(TreeDataset):
    """Images in a zip file."""

    def tree(self) -> FileTree:
        where = Path(self.name)
        return ArchiveTree(where, {name: where / name for name in names_in(where)})


class ShardDataset(FileDataset):
    """Images in tar files, local or behind a URL. Subfolders are splits or classes if the members have no labels."""

    test_wanted = "a column split in `labels`"

    @property
    def pattern(self) -> str:
        """The tar files."""
        return self.name

    def find(self) -> dict[str, Listing]:
        files = list_shards(self.pattern)
        if self.options.labels is not None:
            return parts_from(Path(self.options.labels), files, Path(), names=_member_names(files))
        if files.labels is not None:
            return {"train": files}
        tree = ArchiveTree(Path(self.name), dict(zip(_names_in(files), files.paths, strict=True)))
        return {part: tree.stored(found) for part, found in parts_of_tree(tree).items()}

    def everything(self) -> dict[str, Listing]:
        return {"": list_shards(self.pattern)}

    def takes_root(self, begun: bool) -> bool:
        return begun and "://" not in self.name

    def moved(self, files: Listing, root: Path) -> Listing:
        """`root` is the new folder of the tar files, or the new path of a single one."""
        if not root.is_dir():
            return super().moved(files, root)
        names = (str(path) for path in files.paths)
        now = (f"{root}{name.removeprefix(os.path.dirname(container_of(name)))}" for name in names)
        return replace(files, paths=tuple(now))

    def relocated(self) -> tuple[str, Path | None]:
        data, root = super().relocated()
        return (os.path.join(data, os.path.basename(self.name)) if os.path.isdir(data) else data), root

    def check_present(self, owner: Path) -> None:
        pass  # the name may be a pattern or an address


class CompressedTarDataset(ShardDataset):
    """Images in a compressed tar file."""

    @property
    def pattern(self) -> str:
        return str(decompressed(Path(self.name)))

    def found_again(self, run: Path, train: Listing, held_out: Listing) -> tuple[Listing, Listing]:
        tar = decompressed(Path(self.options.root or self.name))  # again, if the cache was emptied
        train, held_out = (
            replace(files, paths=tuple(f"{tar}{str(path).removeprefix(container_of(path))}" for path in files.paths))
            for files in (train, held_out)
        )
        return train, held_out


class VideoDataset(TreeDataset):
    """Frames of videos, in a folder or of a single file. Those of one video are never split."""

    ignored = frozenset({"white"})
    group = "video"

    def tree(self) -> FileTree:
        return Videos(Path(self.name), self.options.frames)


def _names_in(files: Listing) -> list[str]:
    """The paths of images in tar files; of several tar files, with the number of the file if they agree."""
    found = [match for path in files.paths if (match := MEMBER.fullmatch(str(path)))]
    names = [posixpath.normpath(match["name"]).lstrip("/") for match in found]
    return names if len({*names}) == len(names) else [f"{match['tar']}/{match['name']}".lstrip("/") for match in found]


def _member_names(files: Listing) -> list[str]:
    """The names of the members of tar files, which a table of labels refers to."""
    names = [match["name"] for path in files.paths if (match := MEMBER.fullmatch(str(path)))]
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise UserError(f"`labels` needs member names that differ, but several tar files have {printable(twice[0])}")
    return names


def with_classes(tree: FileTree, files: Listing) -> Listing:
    """Files of all splits, labelled by their class folders, also below folders of splits; −1 if there is none."""
    folders, _ = _split_folders(tree)
    roots = [*folders.values()] or [tree.root]
    inside = {
        root: replace(files, paths=tuple(p for p in files.paths if Path(p).is_relative_to(root))) for root in roots
    }
    known = sorted(set().union(*(classes_below(root, below) for root, below in inside.items())), key=os.fsencode)
    found: dict[Path | str, int] = {}
    for root, below in inside.items():
        labelled = labelled_below(root, below, known)
        if labelled.labels is not None:
            found |= dict(zip(below.paths, labelled.labels.tolist(), strict=True))
    if not found:
        return files
    return replace(files, labels=torch.tensor([found.get(path, -1) for path in files.paths]), classes=tuple(known))


def classes_in_words(images: Any) -> str:
    """The number of classes, their names if they are short, and the number of unlabelled images."""
    if not images.classes:
        return "no labels"
    names = printable(", ".join(images.classes))
    without = 0 if images.labels is None else int((images.labels < 0).sum())
    listed = f": {names}" * (len(names) <= FEW_LETTERS)
    unlabelled = f"; {pluralize(without, 'image')} without a label" * (without > 0)
    number = f"{len(images.classes)} classes" if len(images.classes) > 1 else "1 class, too few to measure accuracy"
    return f"{number}{listed}{unlabelled}"


def others_in_words(parts: Mapping[str, Any]) -> str:
    """The numbers of images of the splits beside the training images."""
    others = [f"{len(parts[part]):,} {part}" for part in ("val", "test") if part in parts]
    return f"; also {' and '.join(others)} images" if others else ""


def parts_of_tree(tree: FileTree, labels: str | None = None) -> dict[str, Listing]:
    """The images of each split, by the folders train, val and test or the CSV file `labels`."""
    folders, others = _split_folders(tree)
    if folders and labels is None:
        parts = _alike(tree, folders)
        return parts | {"train": _with_unlabelled(tree, parts["train"], others)}
    files = labelled_below(tree.root, tree.some_images(tree.root))
    if labels is None:
        return {"train": files}
    return parts_from(Path(labels), files, tree.root, {folder.name: part for part, folder in folders.items()})


def _alike(tree: FileTree, folders: dict[str, Path]) -> dict[str, Listing]:
    """The images of each split, labelled by the classes of all splits, if any split has labels."""
    where = tree.root
    found = {part: tree.some_images(folder) for part, folder in folders.items()}
    names = {part: classes_below(folders[part], files) for part, files in found.items()}
    if all(labelled_below(folders[part], files).labels is None for part, files in found.items()):
        return found
    listed = {part: labelled_below(folders[part], files, set().union(*names.values())) for part, files in found.items()}
    for part, files in listed.items():
        closed = [printable(folder) for folder in (*found["train"].closed, *files.closed)]
        unlike = names[part] != names["train"] and (closed or not names["train"] & names[part])
        if unlike or (files.labels is None) != (listed["train"].labels is None):
            why = f"; {closed[0]} could not be read" if closed else ""
            both = f"{folders['train'].name} and {folders[part].name}"
            raise UserError(f"{where}: {both} must have the same class folders{why}")
        for one, other in ((part, "train"), ("train", part)):
            if missing := sorted(map(printable, names[other] - names[one])):
                names_of = ", ".join(missing[:3]) + ", …" * (len(missing) > 3)
                notify_once(f"{where}: {folders[one].name} has no images of {names_of}, unlike {folders[other].name}")
    return listed


def _with_unlabelled(tree: FileTree, train: Listing, others: Sequence[str]) -> Listing:
    """`train` with the images of folders named unlabeled; other folders beside the split are reported and ignored."""
    for name in others:
        files = tree.images(tree.root / name)
        if name.lower() in UNLABELLED:
            labels = None if train.labels is None else torch.cat([train.labels, torch.full((len(files),), -1)])
            closed = {**train.closed, **files.closed}
            train = replace(train, paths=train.paths + files.paths, labels=labels, closed=closed)
        elif files.paths:
            notify_once(
                f"{tree.root}: ignored {pluralize(len(files), 'image')} in {printable(name)}: not part of the split"
            )
    return train


def _split_folders(tree: FileTree) -> tuple[dict[str, Path], list[str]]:
    """({split: folder}, names of the other folders); empty if the folder has no split.

    A split needs a folder train and one of val, test or unlabeled, in upper or lower case.
    """
    named: dict[str, list[str]] = {}
    for name in sorted(tree.folders()):
        named.setdefault(PARTS.get(name.lower(), ""), []).append(name)
    others = [name for name in named.pop("", []) if not name.startswith(".")]
    beside = any(name.lower() in UNLABELLED for name in others)
    if "train" not in named or (len(named) < 2 and not beside):
        return {}, []
    for part, names in named.items():
        if len(names) > 1:
            raise UserError(f"{tree.root}: {' and '.join(names)} could each be the {part} images: rename all but one")
    return {part: tree.root.joinpath(*names) for part, names in named.items()}, others


def _any_there(paths: Iterable[Path | str]) -> bool:
    """Whether any of these files exists.

    Raises:
        UserError: If none was found and permission was denied for one.
    """
    refused = None
    for path in paths:
        try:
            if exists(path):
                return True
            os.stat(container_of(path))
        except PermissionError as error:
            refused = refused or error
        except OSError:
            pass
    with path_errors_as_user_errors():
        if refused is not None:
            raise refused
    return False


def save_files(path: Path, train: Listing, held_out: Listing) -> None:
    """Write the training and held-out files of a run, so that files added later are not used."""
    lists = [
        {
            "names": [os.fsdecode(name) for name in files.paths],
            "labels": None if files.labels is None else files.labels.tolist(),
        }
        for files in (train, held_out)
    ]
    known = {"classes": train.classes, "channels": train.bands, "learnt": lists[0], "held_out": lists[1]}
    write_json(path, known)
    remember_own_file(path)


def saved_files(path: Path) -> tuple[Listing, Listing]:
    """The lists that `save_files` wrote, including files that no longer exist."""
    saved = read_record(path, _SavedFiles)
    try:
        train, held_out = (_listing(part, tuple(saved["classes"])) for part in (saved["learnt"], saved["held_out"]))
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error})") from None
    return train, held_out


def saved_channels(path: Path) -> int | None:
    """The number of channels that a run reads; None if it is of an earlier version."""
    return read_record(path, _SavedFiles).get("channels")


class _SavedList(TypedDict):
    names: list[str]
    labels: list[int] | None


class _SavedFiles(TypedDict):
    """The content of files.json."""

    classes: list[str]
    channels: NotRequired[int | None]  # not in older files
    learnt: _SavedList
    held_out: _SavedList


def _listing(saved: _SavedList, classes: tuple[str, ...]) -> Listing:
    paths, labels = tuple(map(file_or_member, saved["names"])), saved["labels"]
    if any("\0" in name for name in saved["names"]):
        raise ValueError("a name has a null character")
    if labels is None:
        return Listing(paths, None, classes)
    if len(labels) != len(paths) or not all(-1 <= label < len(classes) for label in labels):
        raise ValueError(f"labels must be {len(paths)} numbers from -1 to {len(classes) - 1}")
    return Listing(paths, torch.tensor(labels), classes)
