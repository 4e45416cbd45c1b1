"""Measures of features from nearest neighbours, without labels: the two numbers of CLID (Lu et al., 2023).

Shapes: x is N (points) × D (dimensions). Memory is linear in N.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from hypersphere.sphere.kmeans import spherical_kmeans
from hypersphere.sphere.measures import check_points
from hypersphere.sphere.pairwise import nearest
from hypersphere.sphere.precision import full_precision
from hypersphere.sphere.unit import unit
from hypersphere.util.random_numbers import LEARNABILITY, permutation

FITTED_SHARE = 0.9  # TwoNN fits the points with the smallest ratios (as published)
CHUNK_ELEMENTS = 2**22  # squared distances, or coordinates, held in memory at once


@torch.no_grad()
def cluster_learnability(x: Tensor, clusters: int | None = None, seed: int = 0) -> Tensor:
    """Accuracy of predicting a point's cluster from its nearest neighbour (Lu et al., 2023).

    Spherical k-means (10 iterations, starting from points drawn by `seed`) assigns each point to a cluster. The measure
    is the leave-one-out accuracy of a 1-nearest-neighbour classifier: the share of points whose nearest other point, by
    cosine, is in the same cluster. The published measure is the validation accuracy of such a classifier. The first
    preprint has a prequential accuracy, which depends on the order of the points.

    Args:
        x: Features of shape (N, D), any float dtype; rows are normalized to unit length.
        clusters: Number of clusters, at most N. Default: the square root of N, rounded.
        seed: Seed of the starting points.

    Returns:
        A scalar tensor between 0 and 1, float64, on the CPU. NaN if k-means finds a single cluster, as of features that
        coincide: there is nothing to predict. NaN, too, if there are fewer than two rows, or if `x` is not finite.

    Raises:
        TypeError: If `x` is not a tensor.
        ValueError: If `x` is not a floating-point matrix, or `clusters` is below 1.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
        >>> hs.sphere.cluster_learnability(x, clusters=2).item()
        1.0
    """
    points, n = unit(_checked(x)), len(x)
    if clusters is not None and clusters < 1:
        raise ValueError(f"clusters must be at least 1, got {clusters}")
    if n < 2 or not points.isfinite().all():
        return torch.tensor(math.nan, dtype=torch.float64)
    order = permutation(n, seed=seed, stream=LEARNABILITY, device=points.device)
    start = points[order[: min(n, clusters or round(math.sqrt(n)))]]
    with full_precision(points):
        _, cluster = spherical_kmeans(points, start)
    if (cluster == cluster[0]).all():
        return torch.tensor(math.nan, dtype=torch.float64)
    return (cluster[nearest(points)] == cluster).cpu().double().mean()


@torch.no_grad()
def intrinsic_dimension(x: Tensor) -> Tensor:
    """Intrinsic dimension of the features on the sphere, by TwoNN (Facco et al., 2017).

    With r1 and r2 the distances of a point to its two nearest others, and mu_1 <= mu_2 <= ... the sorted ratios r2/r1,
    it is the slope of the line through the origin that fits -log(1 - i/N) against log(mu_i) by least squares, over the
    90 % smallest ratios. Distances are Euclidean, between the unit rows. Points with a copy (r1 = 0) do not count.

    Args:
        x: Features of shape (N, D), any float dtype; rows are normalized to unit length. A zero row counts as a point
            at the centre.

    Returns:
        A scalar tensor, float64, on the CPU: about D - 1 for an even spread over the sphere. NaN if fewer than three
        rows differ, if all ratios are 1, or if `x` is not finite.

    Raises:
        TypeError: If `x` is not a tensor.
        ValueError: If `x` is not a floating-point matrix.

    Example:
        >>> x = torch.randn(2000, 4, generator=torch.Generator().manual_seed(0))
        >>> round(hs.sphere.intrinsic_dimension(x).item())
        3
    """
    ratio = _ratios(unit(_checked(x)))
    ratio = ratio[ratio.isfinite()].sort().values
    count = int(FITTED_SHARE * len(ratio))
    log_ratio = ratio[:count].log()
    expected = -torch.log1p(-torch.arange(1, count + 1, dtype=torch.float64) / max(1, len(ratio)))
    slope = (log_ratio * expected).sum() / log_ratio.square().sum()
    return torch.where(slope.isfinite(), slope, math.nan)


def _checked(x: Tensor) -> Tensor:
    check_points(x, "x")
    return x.detach()


def _ratios(points: Tensor) -> Tensor:
    """r2 / r1 of each point, N, float64 on the CPU; infinite or NaN if r1 is 0."""
    if len(points) < 3 or not points.isfinite().all():
        return torch.empty(0, dtype=torch.float64)
    first, second = _two_nearest(points)
    near, far = (torch.cat(parts) for parts in zip(*_distances(points, first, second), strict=True))
    return torch.maximum(near, far) / torch.minimum(near, far)


def _distances(points: Tensor, first: Tensor, second: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Distances to both neighbours, in chunks, from float64 differences: accurate for close points too."""
    for part in torch.arange(len(points)).split(max(1, CHUNK_ELEMENTS // points.shape[1])):
        here = points[part].cpu().double()
        yield tuple((points[other[part]].cpu().double() - here).norm(dim=1) for other in (first, second))


def _two_nearest(points: Tensor) -> tuple[Tensor, Tensor]:
    """Indices of the nearest and the second nearest other point.

    Points are centred first, because rounding would hide differences of cosines in a small part of the sphere.
    """
    x = points - points.mean(dim=0)
    squares, found = x.square().sum(dim=1), []
    with full_precision(x):
        for part in torch.arange(len(x), device=x.device).split(max(1, CHUNK_ELEMENTS // len(x))):
            distance = squares - 2 * (x[part] @ x.T)  # squared, up to a constant of each row
            distance.scatter_(1, part[:, None], math.inf)
            first = distance.argmin(dim=1, keepdim=True)
            second = distance.scatter_(1, first, math.inf).argmin(dim=1)
            found.append((first[:, 0], second))
    firsts, seconds = zip(*found, strict=True)
    return torch.cat(firsts), torch.cat(seconds)
