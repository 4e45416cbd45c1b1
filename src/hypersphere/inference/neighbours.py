"""Nearest neighbours of images in a file of embeddings, by an exhaustive search."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from hypersphere.data.tar_members import file_or_member
from hypersphere.errors import UserError
from hypersphere.inference.embedding_files import EmbeddingFile, VectorBatch, read_vectors
from hypersphere.inference.loading import Loaded, load
from hypersphere.nn.libraries import model_name
from hypersphere.runs.preprocess import Preprocess
from hypersphere.sphere import unit


class Neighbour(NamedTuple):
    """An image of the file: its path, or its name in a tar file as `embed` wrote it, and its cosine with the query."""

    path: Path | str
    cosine: float


class Found(NamedTuple):
    """The neighbours of a query, nearest first."""

    query: Path | str
    neighbours: list[Neighbour]


def neighbours(
    file: str | Path,
    queries: Sequence[str | Path],
    *,
    count: int = 10,
    encoder: str | Path | None = None,
    device: str | torch.device = "auto",
    trust: bool = False,
) -> list[Found]:
    """Find the images of a file that are nearest to some queries by cosine.

    A query that is in the file takes its vector from there, and is not its own neighbour. Other queries are encoded by
    the encoder that made the file.

    Args:
        file: A file that `embed` wrote.
        queries: Paths of images.
        count: Neighbours of each query.
        encoder: New location of the encoder that made the file, if it has moved.
        device: Device for the encoder.
        trust: Whether to import and run code that the encoder's folder names. Encoders that you made do not need it.

    Returns:
        The neighbours of each query, nearest first.

    Raises:
        UserError: If a file cannot be read, or the encoder is not the one that made the file.

    Example:
        >>> from hypersphere.inference.embedding_files import VectorBatch, writer
        >>> about = {"encoder": "", "weights": "", "preprocess": {}, "cwd": "/photos"}
        >>> images = VectorBatch(["cat.jpg", "lynx.jpg", "car.jpg"], np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]))
        >>> with writer(Path("photos.npz"), ".npz", 2, about, names_are_text=True) as write:
        ...     write(images)
        >>> neighbours("photos.npz", ["/photos/cat.jpg"], count=1)[0].neighbours
        [Neighbour(path=PosixPath('/photos/lynx.jpg'), cosine=0.8000000...)]
    """
    if not isinstance(count, int) or count < 1:
        raise UserError(f"`count` must be an integer of at least 1, got {count}")
    if not queries:
        raise UserError("no queries: pass at least one image")
    file = Path(file)
    vectors = read_vectors(file)
    asked = [_absolute(os.fspath(query), os.getcwd()) for query in queries]
    known = _known(vectors, set(asked))
    unknown = [query for query in dict.fromkeys(asked) if query not in known]
    if unknown or encoder is not None:
        loaded = _load_encoder(file, vectors, encoder, device, trust)
    if unknown:
        known |= dict(zip(unknown, loaded.encode(unknown).cpu().numpy(), strict=True))
    points = _on_sphere(np.stack([known[query] for query in asked]))
    best = _nearest(vectors, points, asked, count)
    return [Found(file_or_member(os.fspath(query)), found) for query, found in zip(queries, best, strict=True)]


def _load_encoder(
    file: Path, vectors: EmbeddingFile, encoder: str | Path | None, device: str | torch.device, trust: bool
) -> Loaded:
    """The encoder that made the file, with the preprocessing that it had then."""
    source = Path(vectors.about["encoder"]) if encoder is None else Path(encoder)
    if not source.exists() and model_name(os.fspath(source)) is None:
        if encoder is not None:
            raise UserError(f"`encoder` {source} does not exist")
        raise UserError(f"{source}, which made {file}, was not found. If it has moved, pass `encoder` NEW_LOCATION")
    loaded = load(source, device, trust=trust)
    if loaded.features != vectors.dimensions:
        raise UserError(f"{source} has {loaded.features} features, but vectors in {file} have {vectors.dimensions}")
    if loaded.fingerprint != vectors.about["weights"]:
        raise UserError(f"{file} was made with other weights than {source} has now: embed the images again")
    try:
        return replace(loaded, preprocess=Preprocess.from_json(vectors.about["preprocess"]))
    except ValueError as error:
        raise UserError(f"{file} is damaged: its preprocessing is invalid ({error})") from None


def pieces_with_paths(vectors: EmbeddingFile) -> Iterator[tuple[list[str], VectorBatch]]:
    """Pieces of the file with the absolute paths of their images."""
    for piece in vectors.pieces():
        yield [_absolute(name, vectors.about["cwd"]) for name in piece.paths], piece


def _absolute(name: str, cwd: str) -> str:
    """An absolute path; a URL stays as it is."""
    return name if "://" in name else os.path.normpath(os.path.join(cwd, name))


def _known(vectors: EmbeddingFile, wanted: set[str]) -> dict[str, np.ndarray]:
    """Vectors of the wanted images that are in the file."""
    found: dict[str, np.ndarray] = {}
    for places, piece in pieces_with_paths(vectors):
        found |= {place: piece.vectors[row].copy() for row, place in enumerate(places) if place in wanted}
        if len(found) == len(wanted):
            break
    return found


def _nearest(vectors: EmbeddingFile, points: np.ndarray, asked: Sequence[str], count: int) -> list[list[Neighbour]]:
    """The nearest images of each query, piece by piece; of equal cosines the first in the file."""
    best: list[list[Neighbour]] = [[] for _ in asked]
    for places, piece in pieces_with_paths(vectors):
        cosines = points @ _on_sphere(piece.vectors).T
        for row, (query, own) in enumerate(zip(asked, cosines, strict=True)):
            some = np.argsort(-own, kind="stable")[: count + 1]  # one may be the query
            more = [Neighbour(file_or_member(places[n]), float(own[n])) for n in some if places[n] != query]
            best[row] = sorted(best[row] + more, key=lambda one: -one.cosine)[:count]
    return best


def _on_sphere(vectors: np.ndarray) -> np.ndarray:
    return unit(torch.from_numpy(np.array(vectors, np.float32))).numpy()
