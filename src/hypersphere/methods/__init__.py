"""Methods by name. A new one is a file here and a line below; or a class of the user's, `package.module:Class`."""

from hypersphere.errors import UserError
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
from hypersphere.util.written import class_at, is_reference, reference_to

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
    "method_of",
    "name_of",
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


def name_of(kind: type[Method]) -> str:
    """By which a config knows a method, one of ours or of a user's."""
    ours = {known: name for name, known in METHODS.items()}
    reference = ours.get(kind) or reference_to(kind)
    if reference is None:
        raise UserError(f"`method` {kind.__name__} must stand at the top of a module, to be found again")
    return reference


def method_of(name: str) -> type[Method]:
    if not is_reference(name):
        return METHODS[name]
    duty = "forward, which makes the loss of a batch"
    return class_at(name, Method, duty, {"encoder", "features"})  # type: ignore[type-abstract]
