"""What a config learns from and is measured on: a data set in memory, or the files of a folder."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hypersphere.config import Config, folder_options, is_folder, preset, recipe
from hypersphere.data import FILE_SOURCES, SOURCES, Holdout, Images, Listing, balanced, list_data, load_data
from hypersphere.data.folder import labels_from, list_folder
from hypersphere.data.shards import MEMBER, is_shards, list_shards
from hypersphere.data.stream import Stream, Wanted, default_workers
from hypersphere.data.survey import survey
from hypersphere.draws import SPLIT, permutation
from hypersphere.errors import UserError
from hypersphere.files import write_atomically
from hypersphere.progress import progress_bar, tell
from hypersphere.views import folder_recipe
from hypersphere.views.crops import middle

MOST_LEARNT, MOST_HELD_OUT = 20_000, 5_000  # images from files that probes look at
WATCHED = (4096, 1024)  # and that monitors do
HELD_OUT_SHARE = 20  # one in so many, of a folder with labels
FILES = "files"  # of a run that learns from files: their names


class Voting(NamedTuple):
    """Of the weighted k-NN."""

    neighbours: int
    temperature: float


def in_files(config: Config) -> bool:
    return config.data in FILE_SOURCES or is_folder(config.data)


def voting_of(data: str) -> Voting:
    source = SOURCES.get(data) or FILE_SOURCES.get(data)
    return Voting(20, 0.07) if source is None else Voting(source.neighbours, source.temperature)


def recipe_for(method: str, data: str = "cifar10", **options: Any) -> Config:
    """A method's recipe on a data set, or on a folder: by what is found there, which is told."""
    if not is_folder(data):
        return recipe(method, data, **options)
    where = data if is_shards(data) else str(Path(data).expanduser().resolve())
    files = _labelled(where, options.get("labels"))
    found = survey(files)
    by_size = folder_options(found.images, found.sides[1])
    if "lr" in preset(method):  # that of a folder is for LARS
        del by_size["lr"]
    config = recipe(method, where, **{**by_size, **options})
    classes = f"; {len(files.classes)} classes" if files.classes else "; no labels"
    tell(f"{where}: {found}{classes}; input of {config.size} × {config.size}")
    return config


def _labelled(where: str, labels: str | None) -> Listing:
    files = list_shards(where) if is_shards(where) else list_folder(Path(where))
    return files if labels is None else labels_from(Path(labels), files, Path(where))


def files_of(config: Config, holdout: Holdout) -> tuple[Listing, Listing]:
    """(what is learnt from, what is held out). Without labels nothing is: some are looked at all the same."""
    if config.data in FILE_SOURCES:
        return list_data(config.data, config.root, holdout)
    folder = Path(config.data)
    parts = {
        name: folder / name for name in ("train", "val", "valid", "validation", "test") if (folder / name).is_dir()
    }
    if config.labels is None and "train" in parts and len(parts) > 1:
        train, test = list_folder(parts.pop("train")), list_folder(next(iter(parts.values())))
        if train.classes != test.classes:
            raise UserError(f"{folder}: the folders of classes below train and {next(iter(parts))} must be the same")
    else:
        train, test = _labelled(config.data, config.labels), None
    if holdout == "test":
        if test is None:
            raise UserError(f"{folder} has no test set: it would be a folder train and a folder test (or val) below it")
        return train, test
    if train.labels is None:
        some = permutation(len(train), seed=0, stream=SPLIT)[:MOST_HELD_OUT].sort().values
        return train, train[some]
    known = train.labels >= 0
    least = int(train.labels[known].bincount().min())
    rest, held_out = balanced(train.labels, max(1, least // HELD_OUT_SHARE))
    return train[rest], train[held_out[train.labels[held_out] >= 0]]


def decoded(files: Listing, side: int, workers: int, most: int, progress: bool = False) -> Images:
    """The middle of each image (of at most so many, evenly chosen), in memory."""
    if len(files) > most:
        files = files[permutation(len(files), seed=1, stream=SPLIT)[:most].sort().values]
    stream = Stream(files.paths, partial(_middle, side=side), side=side, workers=workers)
    batches = ([Wanted(n, None) for n in part.tolist()] for part in torch.arange(len(files)).split(64))
    parts = []
    with progress_bar("reading images", len(files), show=progress and len(files) > 1000) as bar:
        for part in stream(batches):
            parts.append(part.pixels)
            bar.update(sum(map(len, parts)))
    good = [n for n, path in enumerate(files.paths) if path not in stream.unreadable]
    labels = torch.full((len(files),), -1) if files.labels is None else files.labels
    return Images(torch.cat(parts), labels, files.classes)[torch.tensor(good)]


def _middle(image: Tensor, how: None, side: int) -> np.ndarray:
    return middle(image, side)


def images_of(
    config: Config,
    holdout: Holdout,
    most: tuple[int, int] = (MOST_LEARNT, MOST_HELD_OUT),
    progress: bool = False,
) -> tuple[Images, Images]:
    """In memory: a data set whole; from files at most so many, at the size that evaluation crops from."""
    if not in_files(config):
        return load_data(config.data, holdout, config.root)
    side, workers = stored_side(config), workers_of(config)
    sets = zip(files_of(config, holdout), most, strict=True)
    learnt, held_out = (decoded(files, side, workers, n, progress) for files, n in sets)
    return learnt, held_out


def workers_of(config: Config) -> int:
    return default_workers(torch.cuda.is_available()) if config.workers is None else config.workers


def stored_side(config: Config) -> int:
    """Of images in memory, from which evaluation takes the middle."""
    size = config.size or 224
    return folder_recipe(size).resize or size


def save_files(path: Path, files: Listing) -> None:
    """The list a run learns from, as it was at its start: files that come later are none of its own."""
    write_atomically(path, b"\0".join(os.fsencode(name) for name in files.paths))


def saved_files(path: Path, files: Listing) -> Listing:
    """The list of a run's start; what has vanished since is still on it."""
    if not path.is_file():
        return files
    names = [os.fsdecode(name) for name in path.read_bytes().split(b"\0")]
    paths = tuple(name if MEMBER.fullmatch(name) else Path(name) for name in names)
    if paths == files.paths or files.labels is None:
        return replace(files, paths=paths)
    known = dict(zip(files.paths, files.labels.tolist(), strict=True))
    return replace(files, paths=paths, labels=torch.tensor([known.get(name, -1) for name in paths]))
