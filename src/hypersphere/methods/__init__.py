"""Methods by name. A new one is a file here and a line below."""

from hypersphere.methods.barlow import BarlowTwins
from hypersphere.methods.base import Batch, Features, Method, Spreading, Step
from hypersphere.methods.byol import BYOL
from hypersphere.methods.deepcluster import DeepCluster
from hypersphere.methods.dino import DINO
from hypersphere.methods.infomin import InfoMin
from hypersphere.methods.moco import MoCo
from hypersphere.methods.obow import OBoW
from hypersphere.methods.simclr import SimCLR
from hypersphere.methods.simsiam import SimSiam
from hypersphere.methods.supervised import Supervised
from hypersphere.methods.swav import SwAV

__all__ = [
    "BYOL",
    "DINO",
    "METHODS",
    "BarlowTwins",
    "Batch",
    "DeepCluster",
    "Features",
    "InfoMin",
    "Method",
    "MoCo",
    "OBoW",
    "SimCLR",
    "SimSiam",
    "Spreading",
    "Step",
    "Supervised",
    "SwAV",
]

METHODS: dict[str, type[Method]] = {
    "byol": BYOL,
    "simclr": SimCLR,
    "simsiam": SimSiam,
    "moco": MoCo,
    "infomin": InfoMin,
    "barlow": BarlowTwins,
    "supervised": Supervised,
    "swav": SwAV,
    "dino": DINO,
    "deepcluster": DeepCluster,
    "obow": OBoW,
}
