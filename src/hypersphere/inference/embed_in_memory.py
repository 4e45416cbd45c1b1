"""Embeddings of images in memory: of a folder, of tar files, or of a list of images."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from hypersphere.data.unreadable import none_readable
from hypersphere.inference.embed_to_file import encoded, stream_of
from hypersphere.inference.loading import Loaded, load
from hypersphere.runs.preprocess import Picture, Preprocess
from hypersphere.runs.run import Run
from hypersphere.util.console import notify, pluralize, progress_bar
from hypersphere.util.text import printable


class Embeddings(NamedTuple):
    """What `hs.embed` returns.

    Attributes:
        vectors: Array of shape (N, D), float32; rows are not normalized.
        paths: The image of each row: its path as it was found; "" for images that have none.
        unreadable: Files of a folder that could not be read, with the reasons.
    """

    vectors: np.ndarray
    paths: list[str]
    unreadable: dict[Path | str, str]


def embed(
    source: str | Path | Run | Loaded,
    images: str | os.PathLike[str] | Iterable[Picture],
    *,
    device: str | torch.device = "auto",
    workers: int | None = None,
    trust: bool = False,
    progress: bool = False,
) -> Embeddings:
    """Embed images with a trained encoder.

    `hypersphere embed` writes the same vectors to a file, for more images than fit into memory.

    Args:
        source: A run or its folder, the folder of an exported encoder, or what `hs.load` returned.
        images: Folder of images or tar files; or a list of paths, PIL images, contents of files or uint8 arrays.
        device: Device of an encoder that is loaded ("auto": a GPU if there is one).
        workers: Processes that read the images of a folder (None: chosen from the number of cores).
        trust: Whether to import and run code that `source` names. Encoders that you made do not need it.
        progress: Whether to show a progress bar.

    Returns:
        The vectors, the paths, and what could not be read. Images in a folder that cannot be read are left out, with a
        message.

    Raises:
        UserError: If an argument cannot be used, or none of the images can be read.

    Example:
        >>> import hypersphere as hs
        >>> run = hs.pretrain("byol", data="digits", epochs=1, batch=256, hidden=8, knn_every=0, progress=False)
        >>> found = hs.embed(run.path, [np.zeros((1, 28, 28), np.uint8)], device="cpu")
        >>> found.vectors.shape
        (1, 128)
    """
    if isinstance(source, Run):
        loaded = Loaded(source.path, source.encoder, Preprocess.of(source.config))
    else:
        loaded = source if isinstance(source, Loaded) else load(source, device, trust=trust)
    if not isinstance(images, str | os.PathLike):
        pictures = list(images)
        paths = [os.fspath(one) if isinstance(one, str | os.PathLike) else "" for one in pictures]
        return Embeddings(loaded.encode(pictures).cpu().numpy(), paths, {})
    where = os.fspath(images)
    stream, files = stream_of(loaded, [where], workers)
    with progress_bar(f"embedding {printable(where)}", len(files), 0, progress) as bar:
        parts = list(encoded(loaded, stream, bar, files.labels))
    if not parts:
        raise none_readable(len(files), stream.unreadable)
    if stream.unreadable:
        notify(f"{pluralize(len(stream.unreadable), 'file')} in {printable(where)} could not be read")
    paths = [name for part in parts for name in part.paths]
    return Embeddings(np.concatenate([part.vectors for part in parts]), paths, stream.unreadable)
