"""What a config learns from and is measured on: a data set in memory, or the files of a folder."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hypersphere.config import Config, fitting, recipe
from hypersphere.data import FILE_SOURCES, SOURCES, Holdout, Images, Listing, list_data, load_data
from hypersphere.data.arrays import read_arrays
from hypersphere.data.folder import deepest_folder, labelled_below, list_folder, shown
from hypersphere.data.shards import MEMBER, is_shards, list_shards
from hypersphere.data.splits import PARTS, held_out_of
from hypersphere.data.stream import Stream, Wanted, default_workers
from hypersphere.data.survey import survey
from hypersphere.data.table import parts_from
from hypersphere.draws import SPLIT, permutation
from hypersphere.errors import UserError, refusals_told
from hypersphere.files import write_json
from hypersphere.launch import place_on_machine
from hypersphere.presets import folder_options, is_folder, on_photographs, preset
from hypersphere.progress import progress_bar, tell
from hypersphere.views import folder_recipe
from hypersphere.views.crops import middle_of
from hypersphere.written import is_arrays, is_reference, reference_to

MOST_LEARNT, MOST_HELD_OUT = 20_000, 5_000  # images from files that are held in memory
WATCHED, TRIED = (4096, 1024), (16, 16)  # and that monitors do; and that processes without monitors do
FILES = "files.json"  # of a run that learns from files: their names and labels
FEW_LETTERS = 60  # in which names of classes are told


class Voting(NamedTuple):
    """Of the weighted k-NN."""

    neighbours: int
    temperature: float


def in_files(config: Config) -> bool:
    return config.data in FILE_SOURCES or is_folder(config.data)


def of_any_size(config: Config) -> bool:
    """Images that no recipe of their own is known for: `size` says what the encoder sees."""
    return in_files(config) or is_arrays(config.data)


def voting_of(data: str) -> Voting:
    source = SOURCES.get(data) or FILE_SOURCES.get(data)
    return Voting(20, 0.07) if source is None else Voting(source.neighbours, source.temperature)


def recipe_for(method: str, data: str | os.PathLike[str] = "cifar10", **options: Any) -> Config:
    """A method's recipe on a data set, or on a folder: by what is found there, which is told."""
    data = os.fspath(data) if isinstance(data, os.PathLike) else data
    if not isinstance(data, str):
        data = _reference(data)
    where, options = located(data), fitting(options)  # a mistake is told before anything is looked for
    if is_arrays(where):
        return _recipe_for_arrays(method, where, options)
    if not is_folder(where):
        return recipe(method, where, **options)
    files = _parts(where, options.get("labels"))["train"]
    found = survey(files, options.get("white"))
    if len(files) < 2:
        raise UserError(f"{where} holds one image: learning takes two or more")
    config = _recipe_by_size(method, where, found.images, found.sides[1], options)
    groups = "" if files.groups is None else f"; {len(files.groups.unique()):,} groups, each held out as a whole or not"
    closed = f"; folders that could not be read: {len(files.closed)}" if files.closed else ""
    tell(f"{where}: {found}; {_classes_told(files.classes)}{groups}{_deeper_told(where, files)}{closed}")
    return config


def located(data: str) -> str:
    """As a run keeps it: the whole path of files; names of data sets, of code and of shards elsewhere as they are."""
    in_files_here = is_folder(data) or (is_arrays(data) and not is_reference(data))
    return os.path.abspath(os.path.expanduser(data)) if in_files_here and "://" not in data else data


def _reference(data: Any) -> str:
    reference = reference_to(data)
    if reference is None:
        function = "a function at the top of a module that gives arrays (package.module:function)"
        wanted = f"a name, a folder, a .npz file (np.savez), or {function}"
        raise UserError(f"`data` must be {wanted}, not {type(data).__name__}")
    return reference


def _recipe_for_arrays(method: str, where: str, options: dict[str, Any]) -> Config:
    train = read_arrays(where)["train"]
    height, width = train.pixels.shape[2:]
    config = _recipe_by_size(method, where, len(train), min(height, width), options)
    tell(f"{where}: {len(train):,} images of {height} × {width} pixels; {_classes_told(train.classes)}")
    return config


def _recipe_by_size(method: str, where: str, images: int, side: int, options: dict[str, Any]) -> Config:
    by_size = folder_options(images, options.get("size") or side)
    if "lr" in preset(method):  # that of a folder is for LARS
        del by_size["lr"]
    return recipe(method, where, **{**by_size, **on_photographs(method, where, by_size["size"]), **options})


def _classes_told(classes: tuple[str, ...]) -> str:
    if not classes:
        return "no labels"
    names = shown(", ".join(classes))
    return f"{len(classes)} classes" + f": {names}" * (len(names) <= FEW_LETTERS)


def _deeper_told(where: str, files: Listing) -> str:
    """Classes are looked for in the folder given. Where all lies below one folder in it, they may be there."""
    if files.classes or is_shards(where) or (deepest := deepest_folder(files)) == Path(where):
        return ""
    classes = labelled_below(deepest, files).classes
    look = f"; the {len(classes)} folders in {shown(deepest)} look like classes: give that folder to have labels"
    return look * bool(classes)


def _parts(where: str, labels: str | None) -> dict[str, Listing]:
    """What is learnt from, "train"; and "val" and "test" where folders of such names lie beside it, or a table says
    so."""
    if is_shards(where):
        found = {"train": list_shards(where)}
    elif labels is None and (folders := _split_folders(where)):
        found = {name: list_folder(folder) for name, folder in folders.items()}
        for name, files in found.items():
            if files.classes != found["train"].classes:
                told = f"{folders['train'].name} and {folders[name].name}"
                closed = [shown(folder) for folder in (*found["train"].closed, *files.closed)]
                why = f"; {closed[0]} could not be read" if closed else ""
                raise UserError(f"{where}: the folders of classes below {told} must be the same{why}")
    else:
        found = {"train": list_folder(Path(where))}
    if labels is None:
        return found
    split = {} if is_shards(where) else _split_folders(where)
    names = {folder.name: part for part, folder in split.items()}
    return parts_from(Path(labels), found["train"], Path(where), names)


def _split_folders(where: str) -> dict[str, Path]:
    """By part, the folders that are a split, whatever the case of their names: none, unless one is to be learnt from
    and another held out."""
    _, below, _ = next(os.walk(where), ("", [], []))
    named: dict[str, list[str]] = {}
    for name in sorted(below):
        if part := PARTS.get(name.lower()):
            named.setdefault(part, []).append(name)
    if "train" not in named or len(named) < 2:
        return {}
    for part, names in named.items():
        if len(names) > 1:
            raise UserError(f"{where}: {' and '.join(names)} could each be the {part} images: rename all but one")
    return {part: Path(where, *names) for part, names in named.items()}


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
    parts = _parts(str(config.root) if moved else config.data, config.labels)
    train, val, test = parts["train"], parts.get("val"), parts.get("test")
    if holdout == "test":
        if test is None and val is None:
            wanted = "a folder train and a folder test (or val) below it, or a column split of `labels`"
            raise UserError(f"{config.data} has no test set: it would be {wanted}")
        return train, test or val  # type: ignore[return-value]
    if val is not None:
        return train, val
    rest, some = held_out_of(train.labels, len(train), train.groups)
    return train[rest], train[some]


def takes_root(config: Config, *, begun: bool = True) -> bool:
    """Sets by name are looked for there; and the images of a run on a folder that has moved since it has begun."""
    return begun and not is_shards(config.data) if is_folder(config.data) else not is_arrays(config.data)


def with_root(config: Config, root: str | Path | None, *, begun: bool = True) -> Config:
    """A config, the data of which lie there now, if that is said."""
    if root is not None and not takes_root(config, begun=begun):
        told = "it is for data sets by name, and for runs on folders that have moved since"
        raise UserError(f"`root` means nothing for {config.data}: {told}; leave it out")
    return config if root is None else config.replace(root=root)


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


def is_held_out(learnt: Listing | Images, others: Listing | Images) -> bool:
    """Whether a run learns from none of the others. Without labels it may learn from them, and then from all of them:
    the first one tells."""
    if isinstance(learnt, Listing) and isinstance(others, Listing):
        return others.paths[0] not in learnt.paths
    if others.classes:
        return True
    assert isinstance(learnt, Images)
    assert isinstance(others, Images)
    return not (learnt.pixels == others.pixels[0]).flatten(1).all(1).any()


def decoded(files: Listing, side: int, workers: int, most: int, progress: bool = False) -> Images:
    """The middle of each image (of at most so many, evenly chosen), in memory."""
    if len(files) > most:
        order = permutation(len(files), seed=1, stream=SPLIT)
        if files.labels is not None:  # those with a label before those without
            order = order[(files.labels[order] < 0).long().argsort(stable=True)]
        files = files[order[:most].sort().values]
    parts: list[Tensor] = []
    unreadable: dict[Path | str, str] = {}
    with progress_bar("reading images", len(files), show=progress and len(files) > 1000) as bar:
        for part in middles(files, side, workers, unreadable):
            parts.append(part)
            bar.update(sum(map(len, parts)))
    good = [n for n, path in enumerate(files.paths) if path not in unreadable]
    labels = torch.full((len(files),), -1) if files.labels is None else files.labels
    return Images(torch.cat(parts), labels, files.classes)[torch.tensor(good)]


def middles(
    files: Listing, side: int, workers: int, unreadable: dict[Path | str, str] | None = None
) -> Iterator[Tensor]:
    """The middle of every image, batch by batch in their order, B × 3 × side × side bytes; in place of one that cannot
    be read, which `unreadable` is told, a neighbour's."""
    stream = Stream(files.paths, partial(middle_of, side=side), side=side, workers=workers, white=files.white)
    batches = ([Wanted(n, None) for n in part.tolist()] for part in torch.arange(len(files)).split(64))
    for part in stream(batches):
        yield part.pixels
    if unreadable is not None:
        unreadable.update(stream.unreadable)


def fingerprint(images: Iterable[Images]) -> str:
    """Of pixels and labels."""
    found = hashlib.sha256()
    for some in images:
        found.update(some.pixels.cpu().numpy().data)
        found.update(some.labels.cpu().numpy().data)
    return found.hexdigest()[:12]


def check_same(config: Config, run: Path, images: Iterable[Images]) -> None:
    """Arrays, unlike files, are not listed with the run: are they those that it began with?"""
    began = json.loads((run / "run.json").read_text()).get("images")
    if began is not None and fingerprint(images) != began:
        raise UserError(f"{config.data} has other images, or labels, than when {run} began")


def images_of(
    config: Config,
    holdout: Holdout,
    most: tuple[int, int] = (MOST_LEARNT, MOST_HELD_OUT),
    progress: bool = False,
    run: Path | None = None,
    files: tuple[Listing, Listing] | None = None,
) -> tuple[Images, Images]:
    """In memory: a data set whole; from files (those of the config) at most so many, at the size that evaluation crops
    from."""
    if not in_files(config):
        found = load_data(config.data, holdout, config.root)
        if run is not None and is_arrays(config.data) and holdout == config.holdout:
            check_same(config, run, found)
        return found
    side, workers = stored_side(config), workers_of(config)
    sets = zip(files or files_of(config, holdout, run), most, strict=True)
    learnt, held_out = (decoded(files, side, workers, n, progress) for files, n in sets)
    return learnt, held_out


def workers_of(config: Config) -> int:
    if config.workers is not None:
        return config.workers
    return -(-default_workers(torch.cuda.is_available()) // place_on_machine()[1])


def stored_side(config: Config) -> int:
    """Of images in memory, from which evaluation takes the middle."""
    size = config.size or 224
    return folder_recipe(size).resize or size


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
    paths = tuple(name if MEMBER.fullmatch(name) else Path(name) for name in saved["names"])
    return Listing(paths, None if saved["labels"] is None else torch.tensor(saved["labels"]), classes)
