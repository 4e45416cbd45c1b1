"""Measures and losses of points on the unit hypersphere.

`potentials` has functions of the cosine of two points, `pairwise` reduces them over all pairs, and energy, uniformity
and the contrastive losses are one line each on top. Each runs dense, tiled or fused (Triton), with the same result.

May import `kernels` and `util`.
"""

from hypersphere.sphere.clid import cluster_learnability, intrinsic_dimension
from hypersphere.sphere.kmeans import spherical_kmeans
from hypersphere.sphere.label_free import alpha_req, lidar, rankme, wasserstein_uniformity
from hypersphere.sphere.losses import byol_loss, info_nce, nt_xent
from hypersphere.sphere.measures import alignment, effective_rank, hyperspherical_energy, uniformity
from hypersphere.sphere.sinkhorn import sinkhorn
from hypersphere.sphere.spread import koleo, sigreg, spherical_mmd, variance_covariance
from hypersphere.sphere.unit import unit

__all__ = [
    "alignment",
    "alpha_req",
    "byol_loss",
    "cluster_learnability",
    "effective_rank",
    "hyperspherical_energy",
    "info_nce",
    "intrinsic_dimension",
    "koleo",
    "lidar",
    "nt_xent",
    "rankme",
    "sigreg",
    "sinkhorn",
    "spherical_kmeans",
    "spherical_mmd",
    "uniformity",
    "unit",
    "variance_covariance",
    "wasserstein_uniformity",
]
