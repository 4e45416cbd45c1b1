"""Losses of self-supervised learning, each as a function and as a module. The methods call the same functions.

`docs/reference/losses.md` compares their conventions with other libraries.

May import: distributed, sphere, util.
"""

from hypersphere.losses.modules import (
    AlignmentLoss,
    BarlowTwinsLoss,
    BYOLLoss,
    DCLLoss,
    EnergyLoss,
    InfoNCELoss,
    KoLeoLoss,
    NegativeCosineLoss,
    NTXentLoss,
    SphericalMMDLoss,
    UniformityLoss,
    VarianceCovarianceLoss,
    VICRegLoss,
)
from hypersphere.losses.pairs import barlow_loss, dcl, negative_cosine, vicreg_loss
from hypersphere.losses.prototypes import DINOLoss, SwAVLoss, dino_loss, swapped_prediction, swav_loss
from hypersphere.losses.queue import MoCoLoss, moco_loss
from hypersphere.sphere import (
    alignment,
    byol_loss,
    hyperspherical_energy,
    info_nce,
    koleo,
    nt_xent,
    sigreg,
    spherical_mmd,
    uniformity,
    variance_covariance,
)
from hypersphere.sphere.spread import SigregLoss

__all__ = [
    "AlignmentLoss",
    "BYOLLoss",
    "BarlowTwinsLoss",
    "DCLLoss",
    "DINOLoss",
    "EnergyLoss",
    "InfoNCELoss",
    "KoLeoLoss",
    "MoCoLoss",
    "NTXentLoss",
    "NegativeCosineLoss",
    "SigregLoss",
    "SphericalMMDLoss",
    "SwAVLoss",
    "UniformityLoss",
    "VICRegLoss",
    "VarianceCovarianceLoss",
    "alignment",
    "barlow_loss",
    "byol_loss",
    "dcl",
    "dino_loss",
    "hyperspherical_energy",
    "info_nce",
    "koleo",
    "moco_loss",
    "negative_cosine",
    "nt_xent",
    "sigreg",
    "spherical_mmd",
    "swapped_prediction",
    "swav_loss",
    "uniformity",
    "variance_covariance",
    "vicreg_loss",
]
