"""The images of a file of embeddings whose vectors have the highest cosine with a query's: all are looked at."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from hypersphere.data.members import file_or_member
from hypersphere.errors import UserError
from hypersphere.inference.loading import Loaded, Preprocess, load
from hypersphere.inference.vectors import Piece, Vectors, read_vectors
from hypersphere.sphere import unit


class Neighbour(NamedTuple):
    path: Path | str  # of a file; or the name of a member of a tar file, as embed wrote it
    cosine: float


class Found(NamedTuple):
    query: Path | str
    neighbours: list[Neighbour]  # nearest first


def neighbours(
    file: str | Path,
    queries: Sequence[str | Path],
    *,
    count: int = 10,
    encoder: str | Path | None = None,
    device: str | torch.device = "auto",
) -> list[Found]:
    """For each query, the images of the file that are nearest to it by cosine.

    A query that is in the file has its vector from there, and is not its own neighbour. Others are encoded by what
    made the file; `encoder` says where that lies now, if it was moved.
    """
    if not isinstance(count, int) or count < 1:
        raise UserError(f"`count` must be a whole number of at least 1, not {count}")
    if not queries:
        raise UserError("at least one query is wanted")
    file = Path(file)
    vectors = read_vectors(file)
    asked = [_whole(os.fspath(query), os.getcwd()) for query in queries]
    known = _known(vectors, set(asked))
    unknown = [query for query in dict.fromkeys(asked) if query not in known]
    if unknown or encoder is not None:
        loaded = _maker(file, vectors, encoder, device)
    if unknown:
        known |= dict(zip(unknown, loaded.encode(unknown).cpu().numpy(), strict=True))
    points = _on_sphere(np.stack([known[query] for query in asked]))
    best = _nearest(vectors, points, asked, count)
    return [Found(file_or_member(os.fspath(query)), found) for query, found in zip(queries, best, strict=True)]


def _maker(file: Path, vectors: Vectors, encoder: str | Path | None, device: str | torch.device) -> Loaded:
    """The encoder that made the file, with its preprocessing as it was then."""
    source = Path(vectors.about["encoder"]) if encoder is None else Path(encoder)
    if not source.exists():
        told = f"{source}, which made {file}, is not there: say with `encoder` where it is now"
        raise UserError(told if encoder is None else f"`encoder` {source} is not there")
    loaded = load(source, device)
    if loaded.features != vectors.dimensions:
        raise UserError(f"{source} makes {loaded.features} features, the vectors in {file} have {vectors.dimensions}")
    if loaded.fingerprint != vectors.about["weights"]:
        raise UserError(f"{file} was made by other weights than {source} has now: embed the images again")
    try:
        return replace(loaded, preprocess=Preprocess.from_json(vectors.about["preprocess"]))
    except (KeyError, TypeError) as error:
        raise UserError(f"{file} is damaged: its preprocessing cannot be understood ({error})") from None


def _located(vectors: Vectors) -> Iterator[tuple[list[str], Piece]]:
    """With the whole path of each image."""
    for piece in vectors.pieces():
        yield [_whole(name, vectors.about["cwd"]) for name in piece.paths], piece


def _whole(name: str, cwd: str) -> str:
    """The path that begins at the root; what is behind a URL has none."""
    return name if "://" in name else os.path.normpath(os.path.join(cwd, name))


def _known(vectors: Vectors, wanted: set[str]) -> dict[str, np.ndarray]:
    """The vectors of those that are in the file."""
    found: dict[str, np.ndarray] = {}
    for places, piece in _located(vectors):
        found |= {place: piece.vectors[row].copy() for row, place in enumerate(places) if place in wanted}
        if len(found) == len(wanted):
            break
    return found


def _nearest(vectors: Vectors, points: np.ndarray, asked: Sequence[str], count: int) -> list[list[Neighbour]]:
    """The best of each piece together with the best until then; the order of the file decides between equals."""
    best: list[list[Neighbour]] = [[] for _ in asked]
    for places, piece in _located(vectors):
        cosines = points @ _on_sphere(piece.vectors).T
        for row, (query, own) in enumerate(zip(asked, cosines, strict=True)):
            some = np.argsort(-own, kind="stable")[: count + 1]  # one may be the query itself
            more = [Neighbour(file_or_member(places[n]), float(own[n])) for n in some if places[n] != query]
            best[row] = sorted(best[row] + more, key=lambda one: -one.cosine)[:count]
    return best


def _on_sphere(vectors: np.ndarray) -> np.ndarray:
    return unit(torch.from_numpy(np.array(vectors, np.float32))).numpy()
