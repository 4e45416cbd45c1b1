"""What a config learns from and is measured on: a data set in memory, or the files of a folder."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from hypersphere.config import Config
from hypersphere.data import FILE_SOURCES, SOURCES, Holdout, Images, Listing, load_data
from hypersphere.data.folder import shown
from hypersphere.data.lists import files_of
from hypersphere.data.stream import Stream, default_workers
from hypersphere.errors import UserError
from hypersphere.presets import is_folder
from hypersphere.util.draws import SPLIT, permutation
from hypersphere.util.launch import place_on_machine
from hypersphere.util.progress import progress_bar, tell_once
from hypersphere.util.written import is_arrays
from hypersphere.views import folder_recipe
from hypersphere.views.crops import middle_of

MOST_LEARNT, MOST_HELD_OUT = 20_000, 5_000  # images from files that are held in memory
Unreadable = dict[Path | str, str]  # file → why
WATCHED, TRIED = (4096, 1024), (16, 16)  # and that monitors do; and that processes without monitors do


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


def is_held_out(learnt: Listing | Images, others: Listing | Images) -> bool:
    """Whether a run learns from none of the others. Without labels it may learn from them, and then from all of them:
    the first one tells."""
    if isinstance(learnt, Listing) and isinstance(others, Listing):
        return others.paths[0] not in learnt.paths
    if others.classes:
        return True
    assert isinstance(learnt, Images)
    assert isinstance(others, Images)
    if learnt.pixels.shape[1:] != others.pixels.shape[1:]:
        return True
    return not (learnt.pixels == others.pixels[0]).flatten(1).all(1).any()


def decoded(
    files: Listing, side: int, workers: int, most: int, progress: bool = False, unreadable: Unreadable | None = None
) -> Images:
    """The middle of each image (of at most so many, evenly chosen), in memory. What cannot be read is left out: noted
    in `unreadable`, or told."""
    if len(files) > most:
        order = permutation(len(files), seed=1, stream=SPLIT)
        if files.labels is not None:  # those with a label before those without
            order = order[(files.labels[order] < 0).long().argsort(stable=True)]
        files = files[order[:most].sort().values]
    parts: list[Tensor] = []
    lost: Unreadable = {}
    with progress_bar("reading images", len(files), show=progress and len(files) > 1000) as bar:
        for part in middles(files, side, workers, lost):
            parts.append(part)
            bar.update(sum(map(len, parts)))
    if unreadable is not None:
        unreadable.update(lost)
    elif lost:
        such = shown(Path(next(iter(lost))).name) + ", …" * (len(lost) > 1)
        tell_once(f"{len(lost):,} of {len(files):,} images looked at cannot be read, and do not count: {such}")
    good = [n for n, path in enumerate(files.paths) if path not in lost]
    labels = torch.full((len(files),), -1) if files.labels is None else files.labels
    return Images(torch.cat(parts), labels, files.classes)[torch.tensor(good)]


def middles(files: Listing, side: int, workers: int, unreadable: Unreadable | None = None) -> Iterator[Tensor]:
    """The middle of every image, batch by batch in their order, B × 3 × side × side bytes; in place of one that cannot
    be read, which `unreadable` is told, a neighbour's."""
    stream = Stream(files.paths, partial(middle_of, side=side), side=side, workers=workers, white=files.white)
    for part in stream.every(64):
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
        raise UserError(f"{config.data} has other images or labels than when {run} began, or others are held out now")


def images_of(
    config: Config,
    holdout: Holdout,
    most: tuple[int, int] = (MOST_LEARNT, MOST_HELD_OUT),
    progress: bool = False,
    run: Path | None = None,
    files: tuple[Listing, Listing] | None = None,
    unreadable: Unreadable | None = None,
) -> tuple[Images, Images]:
    """In memory: a data set whole; from files (those of the config) at most so many, at the size that evaluation crops
    from. `unreadable` is told what cannot be read of the latter: of the former, whoever learns from them."""
    if not in_files(config):
        found = load_data(config.data, holdout, config.root)
        if run is not None and is_arrays(config.data) and holdout == config.holdout:
            check_same(config, run, found)
        return found
    side, workers = stored_side(config), workers_of(config)
    learnt, held_out = files or files_of(config, holdout, run)
    elsewhere: Unreadable | None = None if unreadable is None else {}
    return (
        decoded(learnt, side, workers, most[0], progress, elsewhere),
        decoded(held_out, side, workers, most[1], progress, unreadable),
    )


def workers_of(config: Config) -> int:
    if config.workers is not None:
        return config.workers
    return -(-default_workers(torch.cuda.is_available()) // place_on_machine()[1])


def stored_side(config: Config) -> int:
    """Of images in memory, from which evaluation takes the middle."""
    size = config.size or 224
    return folder_recipe(size).resize or size
