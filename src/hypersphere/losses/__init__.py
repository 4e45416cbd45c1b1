"""Losses of self-supervised learning, each as a function and as a module. The methods call the same functions.

`docs/reference/losses.md` compares their conventions with other libraries.

May import: distributed, errors, sphere, util.
"""

from hypersphere.losses.barlow import BarlowTwinsLoss, barlow_loss
from hypersphere.losses.byol import BYOLLoss, NegativeCosineLoss, byol_loss, negative_cosine
from hypersphere.losses.contrastive import DCLLoss, InfoNCELoss, NTXentLoss, dcl, info_nce, nt_xent
from hypersphere.losses.dino import DINOLoss, dino_loss
from hypersphere.losses.measures import AlignmentLoss, EnergyLoss, UniformityLoss
from hypersphere.losses.moco import MoCoLoss, moco_loss
from hypersphere.losses.prototypes import swapped_prediction
from hypersphere.losses.spread import KoLeoLoss, SigregLoss, SphericalMMDLoss, koleo, sigreg, spherical_mmd
from hypersphere.losses.swav import SwAVLoss, swav_loss
from hypersphere.losses.vicreg import VarianceCovarianceLoss, VICRegLoss, variance_covariance, vicreg_loss
from hypersphere.sphere import alignment, hyperspherical_energy, uniformity

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
