"""k-means on the sphere. Shapes: points N × D, centroids K × D, all of unit length."""

import torch
from torch import Tensor

from hypersphere.sphere.unit import unit

CHUNK_POINTS = 4096  # points whose cosines with all centroids are held at once


@torch.no_grad()
def spherical_kmeans(points: Tensor, start: Tensor, iterations: int = 10) -> tuple[Tensor, Tensor]:
    """Cluster points by the cosine (spherical k-means).

    Each point belongs to the centroid with the largest cosine. Each centroid is the normalized sum of its points; a
    centroid without points stays where it is. The result is deterministic on a given device.

    Args:
        points: Points of shape (N, D), any float dtype; rows are normalized to unit length.
        start: Starting centroids of shape (K, D), normalized too.
        iterations: Number of updates of the centroids.

    Returns:
        The centroids, of shape (K, D) with unit rows, and the cluster of each point, int64 of shape (N,).

    Raises:
        RuntimeError: If `points` and `start` differ in dimensions, dtype or device.

    Example:
        >>> points = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
        >>> centroids, labels = hs.sphere.spherical_kmeans(points, start=points[[0, 2]])
        >>> labels
        tensor([0, 0, 1, 1])
    """
    points, centroids = unit(points), unit(start)
    for _ in range(iterations):
        sums = _sums(points, nearest(points, centroids), len(centroids))
        centroids = torch.where(sums.norm(dim=1, keepdim=True) > 0, unit(sums), centroids)
    return centroids, nearest(points, centroids)


def nearest(points: Tensor, centroids: Tensor) -> Tensor:
    return torch.cat([(part @ centroids.T).argmax(dim=1) for part in points.split(CHUNK_POINTS)])


def _sums(points: Tensor, labels: Tensor, clusters: int) -> Tensor:
    """Sum of each cluster's points: by products with indicators, because index_add_ has no fixed order on a GPU."""
    total = points.new_zeros(clusters, points.shape[1])
    for part, label in zip(points.split(CHUNK_POINTS), labels.split(CHUNK_POINTS), strict=True):
        total += (label == torch.arange(clusters, device=label.device)[:, None]).to(part.dtype) @ part
    return total
