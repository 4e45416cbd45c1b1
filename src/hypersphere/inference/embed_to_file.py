"""Embed all images of a dataset into a file, row by row, so that memory use stays constant."""

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from hypersphere import __version__
from hypersphere.data import Dataset, DataSpec
from hypersphere.data.everything import Everything
from hypersphere.data.unreadable import none_readable, replace_unreadable
from hypersphere.data.worker_stream import Stream, default_workers
from hypersphere.errors import UserError
from hypersphere.inference.embedding_files import VectorBatch, Write, check_output, is_text, rows_at_once, writer
from hypersphere.inference.loading import Loaded, load
from hypersphere.runs.preprocess import AT_ONCE
from hypersphere.util.console import Progress, progress_bar
from hypersphere.util.cores import MOST_PROCESSES
from hypersphere.util.files import put_in_place
from hypersphere.util.text import printable
from hypersphere.util.trust import remember_own_file


class Embedded(NamedTuple):
    """What `embed` wrote."""

    images: int  # rows of the file
    dimensions: int
    unreadable: dict[Path | str, str]  # skipped files and folders, with the reasons


def embed(
    source: str | Path,
    images: str | Path,
    out: str | Path,
    *,
    device: str | torch.device = "auto",
    workers: int | None = None,
    trust: bool = False,
    progress: bool = False,
) -> Embedded:
    """Write the path and embedding of every image to a file.

    Skips files and folders that cannot be read, and lists them next to `out` in a file .unreadable.tsv.

    Args:
        source: Folder of a run or of an exported encoder, or a model of a library, such as timm/resnet50.
        images: Images of any kind, as in the option `data`, or a single image file.
        out: File to write, .parquet, .npz or .csv. It has the classes of images in subfolders, too.
        device: Device of the encoder ("auto": a GPU if there is one).
        workers: Number of worker processes that read images (None: chosen from the number of cores).
        trust: Whether to import and run code that `source` names. Encoders that you made do not need it.
        progress: Whether to show a progress bar.

    Returns:
        The number of images and dimensions, and the unreadable files.

    Raises:
        UserError: If an argument cannot be used, or none of the images can be read.

    Example:
        >>> from hypersphere.inference.embed_to_file import embed
        >>> embed("runs/byol-digits-1a2b3c4d", "photos", "photos.npz").images  # doctest: +SKIP
        1000
    """
    out, images = Path(out), os.fspath(images)
    check_output(out)
    loaded = load(source, device, trust=trust)
    stream, files = stream_of(loaded, [images], workers)
    names_are_text = all(is_text(str(files.name(number))) for number in range(len(files)))
    with (
        put_in_place(out, alone=True) as scratch,
        progress_bar(f"embedding {printable(images)}", len(files), 0, progress) as bar,
    ):
        about, labelled = _about(loaded, images), any(files.labels)
        with writer(scratch, out.suffix, loaded.features, about, names_are_text, labelled) as write:
            rows = _write(write, encoded(loaded, stream, bar, files.labels), rows_at_once(loaded.features))
        if not rows:
            raise none_readable(len(files), stream.unreadable)
    remember_own_file(out)
    replace_unreadable(stream.unreadable, out.with_suffix(".unreadable.tsv"))
    return Embedded(rows, loaded.features, stream.unreadable)


def stream_of(loaded: Loaded, images: Sequence[str], workers: int | None) -> tuple[Stream, Everything]:
    """A stream of all images, which reports closed folders as unreadable, and its reader, which knows their classes.

    Args:
        loaded: The encoder that the images are for.
        images: Datasets, as in the option `data`, and single image files.
        workers: Processes that read images. None: chosen from the number of cores, and none for few images.

    Raises:
        UserError: If there are no images, or `workers` is out of range.
    """
    if workers is not None and not 0 <= workers <= MOST_PROCESSES:
        raise UserError(f"`workers` must be between 0 and {MOST_PROCESSES}, got {workers}")
    how, on_gpu = loaded.preprocess, loaded.device.type == "cuda"
    files = Everything(images, how.white, how.channels_read)
    if workers is None:
        workers = default_workers(on_gpu) if len(files) > AT_ONCE else 0
    stream = Stream(files, how.pixels, side=how.side, workers=workers, pin=on_gpu, fill=False)
    stream.unreadable.update(files.closed)
    return stream, files


def _about(loaded: Loaded, images: str) -> dict[str, Any]:
    """Metadata of the file, so that more images can be embedded in the same way."""
    return {
        "encoder": os.path.abspath(loaded.source) if loaded.source.exists() else os.fspath(loaded.source),
        "weights": loaded.fingerprint,
        "preprocess": vars(loaded.preprocess),
        "images": Dataset.resolve(DataSpec(images)).name,
        "cwd": os.getcwd(),  # for relative paths
        "version": __version__,
    }


def encoded(loaded: Loaded, stream: Stream, bar: Progress, labels: Sequence[str]) -> Iterator[VectorBatch]:
    for pixels, sample in stream.every(AT_ONCE):
        vectors = loaded.encode_pixels(pixels).cpu().numpy()
        if not np.isfinite(vectors).all():
            raise UserError(f"{loaded.source} produces features with NaN or infinity: check whether the run diverged")
        names = [str(stream.reader.name(n)) for n in sample.tolist()]
        yield VectorBatch(names, vectors, [labels[n] for n in sample.tolist()])
        bar.update(int(sample[-1]) + 1)


def _write(write: Write, pieces: Iterator[VectorBatch], at_once: int) -> int:
    """Write `at_once` rows at a time; return the total number of rows."""
    waiting: list[VectorBatch] = []
    rows = 0
    for piece in pieces:
        waiting.append(piece)
        rows += len(piece.paths)
        if sum(len(one.paths) for one in waiting) >= at_once:
            write(_joined(waiting))
            waiting.clear()
    if waiting:
        write(_joined(waiting))
    return rows


def _joined(pieces: Sequence[VectorBatch]) -> VectorBatch:
    names, vectors, labels = zip(*pieces, strict=True)
    return VectorBatch([*chain(*names)], np.concatenate(vectors), [*chain(*labels)])
