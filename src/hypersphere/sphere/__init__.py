"""The mathematics of the unit hypersphere: potentials over pairs of points, and what reduces them."""

from hypersphere.sphere.losses import byol_loss, info_nce, nt_xent
from hypersphere.sphere.measures import alignment, effective_rank, hyperspherical_energy, uniformity
from hypersphere.sphere.unit import unit

__all__ = [
    "alignment",
    "byol_loss",
    "effective_rank",
    "hyperspherical_energy",
    "info_nce",
    "nt_xent",
    "uniformity",
    "unit",
]
