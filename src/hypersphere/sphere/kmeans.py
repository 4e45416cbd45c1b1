"""k-means on the sphere. Shapes: points N × D, centroids K × D, all of length 1."""

import torch
from torch import Tensor

from hypersphere.sphere.unit import unit

AT_ONCE = 4096  # points whose cosines with all centroids are held


@torch.no_grad()
def spherical_kmeans(points: Tensor, start: Tensor, iterations: int = 10) -> tuple[Tensor, Tensor]:
    """Centroids and labels: each point belongs to the centroid of the largest cosine, each centroid is the direction
    of the sum of its points; one that has none stays. The same points and start give the same bits on a device."""
    points, centroids = unit(points), unit(start)
    for _ in range(iterations):
        sums = _sums(points, nearest(points, centroids), len(centroids))
        centroids = torch.where(sums.norm(dim=1, keepdim=True) > 0, unit(sums), centroids)
    return centroids, nearest(points, centroids)


def nearest(points: Tensor, centroids: Tensor) -> Tensor:
    return torch.cat([(part @ centroids.T).argmax(dim=1) for part in points.split(AT_ONCE)])


def _sums(points: Tensor, labels: Tensor, clusters: int) -> Tensor:
    """By products with indicators, because adding by index has no fixed order on a GPU."""
    total = points.new_zeros(clusters, points.shape[1])
    for part, label in zip(points.split(AT_ONCE), labels.split(AT_ONCE), strict=True):
        total += (label == torch.arange(clusters, device=label.device)[:, None]).to(part.dtype) @ part
    return total
