"""The files of a run: which of a folder they are, and where they lie now."""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from hypersphere.config import Config
from hypersphere.data import FILE_SOURCES, Holdout, Listing, list_data
from hypersphere.data.folder import classes_below, find_images, labelled_below, list_folder, shown, some_images
from hypersphere.data.shards import file_or_member, is_shards, list_shards
from hypersphere.data.splits import PARTS, held_out_of, test_of
from hypersphere.data.table import parts_from
from hypersphere.errors import UserError, refusals_told
from hypersphere.presets import is_folder
from hypersphere.util.files import write_json
from hypersphere.util.progress import counted, tell_once
from hypersphere.util.written import is_arrays

FILES = "files.json"  # of a run that learns from files: their names and labels
UNLABELLED = ("unlabeled", "unlabelled")  # names of folders beside those of a split


def parts_of(where: str, labels: str | None) -> dict[str, Listing]:
    """What is learnt from, "train"; and "val" and "test" where folders of such names lie beside it, or a table says
    so."""
    folders, others = ({}, []) if is_shards(where) else _split_folders(where)
    if folders and labels is None:
        parts = _alike(where, folders)
        return parts | {"train": _with_unlabelled(where, parts["train"], others)}
    files = list_shards(where) if is_shards(where) else list_folder(Path(where))
    if labels is None:
        return {"train": files}
    return parts_from(Path(labels), files, Path(where), {folder.name: part for part, folder in folders.items()})


def _alike(where: str, folders: dict[str, Path]) -> dict[str, Listing]:
    """The images of each part, labelled by the classes of all of them, where any has labels."""
    found = {part: some_images(folder) for part, folder in folders.items()}
    names = {part: classes_below(folders[part], files) for part, files in found.items()}
    if all(labelled_below(folders[part], files).labels is None for part, files in found.items()):
        return found
    listed = {part: labelled_below(folders[part], files, set().union(*names.values())) for part, files in found.items()}
    for part, files in listed.items():
        closed = [shown(folder) for folder in (*found["train"].closed, *files.closed)]
        unlike = names[part] != names["train"] and (closed or not names["train"] & names[part])
        if unlike or (files.labels is None) != (listed["train"].labels is None):
            why = f"; {closed[0]} could not be read" if closed else ""
            told = f"{folders['train'].name} and {folders[part].name}"
            raise UserError(f"{where}: the folders of classes below {told} must be the same{why}")
        for one, other in ((part, "train"), ("train", part)):
            if lacks := sorted(map(shown, names[other] - names[one])):
                such = ", ".join(lacks[:3]) + ", …" * (len(lacks) > 3)
                tell_once(f"{where}: {folders[one].name} has no image of {such}, which {folders[other].name} has")
    return listed


def _with_unlabelled(where: str, train: Listing, others: Sequence[str]) -> Listing:
    """What lies beside the parts of a split is learnt from where its folder says that it has no labels, and told."""
    for name in others:
        files = find_images(Path(where, name))
        if name.lower() in UNLABELLED:
            labels = None if train.labels is None else torch.cat([train.labels, torch.full((len(files),), -1)])
            closed = {**train.closed, **files.closed}
            train = replace(train, paths=train.paths + files.paths, labels=labels, closed=closed)
        elif files.paths:
            tell_once(f"{where}: left out, as no part of the split: {counted(len(files), 'image')} in {shown(name)}")
    return train


def _split_folders(where: str) -> tuple[dict[str, Path], list[str]]:
    """By part, the folders that are a split, whatever the case of their names, and the names of other folders: none,
    unless one is to be learnt from and another held out, or without labels."""
    _, below, _ = next(os.walk(where), ("", [], []))
    named: dict[str, list[str]] = {}
    for name in sorted(below):
        named.setdefault(PARTS.get(name.lower(), ""), []).append(name)
    others = [name for name in named.pop("", []) if not name.startswith(".")]
    beside = any(name.lower() in UNLABELLED for name in others)
    if "train" not in named or (len(named) < 2 and not beside):
        return {}, []
    for part, names in named.items():
        if len(names) > 1:
            raise UserError(f"{where}: {' and '.join(names)} could each be the {part} images: rename all but one")
    return {part: Path(where, *names) for part, names in named.items()}, others


def edition_of(data: str, labels: str | None) -> str:
    """Of the files that a run would learn from now, and what is said of them: the first digits of a hash. None of sets
    by name, nor of arrays, which have their own."""
    if not is_folder(data):
        return ""
    digest = hashlib.sha256()
    for part, files in parts_of(data, labels).items():
        digest.update(b"\0".join(map(os.fsencode, (part, *files.classes, *files.paths))))
        for numbers in (files.labels, files.groups):
            digest.update(b"" if numbers is None else numbers.numpy().tobytes())
    return digest.hexdigest()[:8]


def files_of(config: Config, holdout: Holdout, run: Path | None = None) -> tuple[Listing, Listing]:
    """(what is learnt from, what is held out), as it was when a run began. Without labels nothing is held out: some are
    looked at all the same."""
    learnt, held_out = _listed(config, holdout, run)
    return replace(learnt, white=config.white), replace(held_out, white=config.white)


def _listed(config: Config, holdout: Holdout, run: Path | None) -> tuple[Listing, Listing]:
    if run is not None and holdout == config.holdout and (run / FILES).is_file():
        saved = saved_files(run / FILES)
        if is_folder(config.data):
            return _found_again(config, run, *saved)
        if any(map(os.path.exists, saved[0].paths)):  # else they have moved: the set is the same wherever it lies
            return saved
    if config.data in FILE_SOURCES:
        return list_data(config.data, config.root, holdout)
    moved = run is not None and config.root is not None
    parts = parts_of(str(config.root) if moved else config.data, config.labels)
    train = parts["train"]
    if holdout == "test":
        wanted = "a folder train and a folder test (or val) below it, or a column split of `labels`"
        return train, test_of(parts, config.data, wanted)
    if "val" in parts:
        return train, parts["val"]
    rest, some = held_out_of(train.labels, len(train), train.groups)
    return train[rest], train[some]


def takes_root(config: Config, *, begun: bool = True) -> bool:
    """Sets by name are looked for there; and the images of a run on a folder that has moved since it has begun."""
    return begun and not is_shards(config.data) if is_folder(config.data) else not is_arrays(config.data)


def check_root(config: Config, *, begun: bool = True) -> None:
    if config.root is not None and not takes_root(config, begun=begun):
        told = "it is for data sets by name, and for runs on folders that have moved since"
        raise UserError(f"`root` means nothing for {config.data}: {told}; leave it out")


def with_root(config: Config, root: str | Path | None) -> Config:
    """The config of a run, the data of which lie there now, if that is said."""
    if root is not None:
        config = config.replace(root=root)
        check_root(config)
    return config


def _found_again(config: Config, run: Path, learnt: Listing, held_out: Listing) -> tuple[Listing, Listing]:
    """The images of a run on a folder, which may lie elsewhere now; some may have vanished from where they were."""
    if is_shards(config.data):
        return learnt, held_out
    if config.root is not None:
        learnt, held_out = (_moved(files, Path(config.data), config.root) for files in (learnt, held_out))
    if not _any_there(learnt.paths):
        told = f"none of its {len(learnt)} images are there, such as {shown(learnt.paths[0])}"
        if config.root is not None:
            raise UserError(f"{run}: `root` {config.root} is not where {config.data} lies now: {told}")
        raise UserError(f"{run}: {told}; where {config.data} lies now, `root` says")
    return learnt, held_out


def without_list(config: Config) -> Config:
    """A config that no list of files came along with: its folder is the one where that lies now."""
    moved = is_folder(config.data) and config.root is not None
    return config.replace(data=os.path.abspath(str(config.root)), root=None) if moved else config


def needs_root(config: Config, run: Path) -> bool:
    """Whether a root said for several runs is for this one: a folder must have lost all that the run began with."""
    if not (is_folder(config.data) and takes_root(config)):
        return takes_root(config)
    known = saved_files(run / FILES)[0].paths if (run / FILES).is_file() else (config.data,)
    return not any(map(os.path.exists, known))


def _any_there(paths: Iterable[Path | str]) -> bool:
    """What may not be looked at has not moved: that is told where nothing else is there."""
    refused = None
    for path in paths:
        try:
            os.stat(path)
            return True
        except PermissionError as error:
            refused = refused or error
        except OSError:
            pass
    with refusals_told():
        if refused is not None:
            raise refused
    return False


def _moved(files: Listing, before: Path, now: Path) -> Listing:
    """What lay below one folder, below another."""
    return replace(files, paths=tuple(now / Path(path).relative_to(before) for path in files.paths))


def save_files(path: Path, learnt: Listing, held_out: Listing) -> None:
    """What a run learns from and what it holds out, as they were at its start: files that come later are neither."""
    lists = [
        {
            "names": [os.fsdecode(name) for name in files.paths],
            "labels": None if files.labels is None else files.labels.tolist(),
        }
        for files in (learnt, held_out)
    ]
    write_json(path, {"classes": learnt.classes, "learnt": lists[0], "held_out": lists[1]})


def saved_files(path: Path) -> tuple[Listing, Listing]:
    """The lists of a run's start; what has vanished since is still on them."""
    try:
        saved = json.loads(path.read_text())
        learnt, held_out = (_listing(saved[part], tuple(saved["classes"])) for part in ("learnt", "held_out"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error})") from None
    return learnt, held_out


def _listing(saved: dict[str, Any], classes: tuple[str, ...]) -> Listing:
    paths = tuple(map(file_or_member, saved["names"]))
    return Listing(paths, None if saved["labels"] is None else torch.tensor(saved["labels"]), classes)
