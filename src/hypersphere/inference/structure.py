"""What a file of embeddings is made of: near-duplicates, clusters and outliers."""

import math
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from hypersphere.data.tar_members import file_or_member
from hypersphere.errors import UserError
from hypersphere.inference.embedding_files import read_vectors
from hypersphere.inference.neighbours import Neighbour, pieces_with_paths
from hypersphere.inference.similarity import close_pairs, nearest_cosines, usual_nearest_angle
from hypersphere.runs.machine import pick_device
from hypersphere.sphere import spherical_kmeans, unit
from hypersphere.util.console import progress_bar

SHARE = 0.25  # of the usual angle to the nearest neighbour, up to which two images are duplicates
CLOSEST = 0.9999  # highest default threshold: rounding keeps equal images from 1
RESTARTS, ITERATIONS = 3, 30  # of k-means
NEIGHBOURS = 10  # whose similarity tells outliers


class Duplicates(NamedTuple):
    """Groups of near-duplicates.

    Attributes:
        groups: The images of each group in the order of the file, largest group first. The cosine of an image is that
            with the most similar other image of its group.
        threshold: Smallest cosine of a pair.
        pairs: Number of pairs.
        images: Number of all images in the file.
    """

    groups: list[list[Neighbour]]
    threshold: float
    pairs: int
    images: int


class Cluster(NamedTuple):
    """A cluster of images.

    Attributes:
        size: Number of its images.
        cohesion: Mean cosine of its images with its centre.
        images: Those nearest to its centre, with their cosines, nearest first.
    """

    size: int
    cohesion: float
    images: list[Neighbour]


def duplicates(
    file: str | Path, threshold: float | None = None, *, device: str | torch.device = "auto", progress: bool = False
) -> Duplicates:
    """Find groups of near-duplicates: images that are connected by pairs with a high cosine.

    Args:
        file: A file that `embed` wrote.
        threshold: Smallest cosine of a pair. By default the cosine of a quarter of the usual angle, which is the median
            angle between an image and its nearest neighbour, since encoders differ in how close images are.
        device: Device that computes the cosines.
        progress: Whether to show progress.

    Returns:
        The groups, and the threshold.

    Raises:
        UserError: If the file cannot be read, or the threshold is no cosine.
    """
    if threshold is not None and not -1 <= threshold <= 1:
        raise UserError(f"`threshold` must be a cosine, from -1 to 1, got {threshold}")
    names, points = _read(Path(file), device, 2)
    if threshold is None:
        threshold = min(CLOSEST, math.cos(SHARE * usual_nearest_angle(points)))
    with progress_bar("comparing images", len(points), show=progress) as bar:
        pairs, cosines = close_pairs(points, threshold, bar)
    closest = torch.full((len(names),), -math.inf)
    for column in pairs.unbind(1):
        closest = closest.scatter_reduce(0, column, cosines, "amax")
    groups = [[_image(names, n, closest) for n in group] for group in connected(pairs, len(names))]
    return Duplicates(groups, threshold, len(pairs), len(names))


def connected(pairs: Tensor, n: int) -> list[list[int]]:
    """Groups of two or more of `range(n)` that are connected by pairs, largest first."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    i, j = pairs.numpy().T
    _, component = connected_components(coo_matrix((torch.ones(len(pairs)).numpy(), (i, j)), shape=(n, n)))
    members: dict[int, list[int]] = defaultdict(list)
    for index in pairs.unique().tolist():
        members[component[index]].append(index)
    return sorted(members.values(), key=lambda group: (-len(group), group))


def clusters(
    file: str | Path,
    count: int,
    shown: int = 6,
    *,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: bool = False,
) -> list[Cluster]:
    """Cluster images by the cosine, with spherical k-means from the best of several k-means++ starts.

    Args:
        file: A file that `embed` wrote.
        count: Number of clusters.
        shown: Images of each cluster to return.
        seed: Seed of the starts.
        device: Device that computes the cosines.
        progress: Whether to show progress.

    Returns:
        The clusters, largest first; fewer than `count` if some are empty.

    Raises:
        UserError: If the file cannot be read, or there are fewer images than clusters.
    """
    if count < 1:
        raise UserError(f"`clusters` must be at least 1, got {count}")
    names, points = _read(Path(file), device, count)
    with progress_bar("clustering", RESTARTS, show=progress) as bar:
        best: tuple[float, Tensor, Tensor] | None = None
        for restart in range(RESTARTS):
            found = spherical_kmeans(points, _spread_out(points, count, seed + restart), ITERATIONS)
            cosines = (points * found[0][found[1]]).sum(dim=1)
            if best is None or float(cosines.mean()) > best[0]:
                best = (float(cosines.mean()), cosines.cpu(), found[1].cpu())
            bar.update(restart + 1)
    assert best is not None
    _, cosines, labels = best
    made = []
    for label in labels.unique().tolist():
        inside = (labels == label).nonzero()[:, 0]
        order = inside[cosines[inside].argsort(descending=True, stable=True)]
        images = [_image(names, n, cosines) for n in order[:shown].tolist()]
        made.append(Cluster(len(inside), float(cosines[inside].mean()), images))
    return sorted(made, key=lambda cluster: -cluster.size)


def _spread_out(points: Tensor, count: int, seed: int) -> Tensor:
    """Starting centroids by k-means++."""
    from sklearn.cluster import kmeans_plusplus

    _, chosen = kmeans_plusplus(points.cpu().numpy(), count, random_state=seed)
    return points[torch.from_numpy(chosen).to(points.device)]


def outliers(
    file: str | Path, count: int, *, device: str | torch.device = "auto", progress: bool = False
) -> list[Neighbour]:
    """Images that are least like others: with the lowest mean cosine with their ten nearest neighbours.

    Args:
        file: A file that `embed` wrote.
        count: Images to return.
        device: Device that computes the cosines.
        progress: Whether to show progress.

    Returns:
        The images with these mean cosines, lowest first.

    Raises:
        UserError: If the file cannot be read.
    """
    if count < 1:
        raise UserError(f"`outliers` must be at least 1, got {count}")
    names, points = _read(Path(file), device, 2)
    with progress_bar("comparing images", len(points), show=progress) as bar:
        means = nearest_cosines(points, min(NEIGHBOURS, len(points) - 1), bar).mean(dim=1).cpu()
    return [_image(names, n, means) for n in means.argsort(stable=True)[:count].tolist()]


def _read(file: Path, device: str | torch.device, least: int) -> tuple[list[str], Tensor]:
    """Absolute paths of all images of a file, and their vectors on the sphere."""
    names: list[str] = []
    parts: list[Tensor] = []
    for places, piece in pieces_with_paths(read_vectors(file)):
        names += places
        parts.append(unit(torch.tensor(piece.vectors, dtype=torch.float32)))
    if len(names) < least:
        raise UserError(f"{file} has {len(names)} images: at least {least} are needed")
    return names, torch.cat(parts).to(pick_device(device))


def _image(names: list[str], index: int, cosines: Tensor) -> Neighbour:
    return Neighbour(file_or_member(names[index]), float(cosines[index]))
