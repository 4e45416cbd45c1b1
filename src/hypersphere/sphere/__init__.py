"""Measures of points on the unit hypersphere.

`potentials` has functions of the cosine of two points, `pairwise` reduces them over all pairs, and energy and
uniformity are one line each on top, as are the losses in `hypersphere.losses`. Each runs dense, tiled or fused
(Triton), with the same result.

May import: errors, kernels, util.
"""

import warnings
from importlib import import_module
from typing import Any

from hypersphere.sphere.clid import cluster_learnability, intrinsic_dimension
from hypersphere.sphere.kmeans import spherical_kmeans
from hypersphere.sphere.label_free import alpha_req, lidar, rankme, wasserstein_uniformity
from hypersphere.sphere.measures import alignment, effective_rank, hyperspherical_energy, uniformity
from hypersphere.sphere.sinkhorn import sinkhorn
from hypersphere.sphere.unit import unit

__all__ = [
    "alignment",
    "alpha_req",
    "cluster_learnability",
    "effective_rank",
    "hyperspherical_energy",
    "intrinsic_dimension",
    "lidar",
    "rankme",
    "sinkhorn",
    "spherical_kmeans",
    "uniformity",
    "unit",
    "wasserstein_uniformity",
]

_MOVED = {"byol_loss", "info_nce", "koleo", "nt_xent", "sigreg", "spherical_mmd", "variance_covariance"}


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{name} is now in hypersphere.losses", DeprecationWarning, stacklevel=2)
    return getattr(import_module("hypersphere.losses"), name)
