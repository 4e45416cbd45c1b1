"""Methods: one file each, with its loss, its options and its recipes. A new one is a file and a line in `METHODS`.

May import: data, distributed, errors, losses, nn, optim, sphere, util.
"""

from hypersphere.errors import UserError, did_you_mean
from hypersphere.methods.barlow import BarlowTwins
from hypersphere.methods.base import Batch, Features, Method, ProjectionLoss, Step
from hypersphere.methods.byol import BYOL
from hypersphere.methods.deepcluster import DeepCluster
from hypersphere.methods.dino import DINO
from hypersphere.methods.distill import Distill
from hypersphere.methods.infomin import InfoMin
from hypersphere.methods.moco import MoCo
from hypersphere.methods.obow import OBoW
from hypersphere.methods.options import MultiCropOptions, NoOptions, ProjectorOptions
from hypersphere.methods.simclr import SimCLR
from hypersphere.methods.simsiam import SimSiam
from hypersphere.methods.supervised import Supervised
from hypersphere.methods.swav import SwAV
from hypersphere.methods.vicreg import VICReg
from hypersphere.util.option_fields import Limits, option
from hypersphere.util.references import import_subclass, is_reference, reference_to

__all__ = [
    "BYOL",
    "DINO",
    "METHODS",
    "BarlowTwins",
    "Batch",
    "DeepCluster",
    "Distill",
    "Features",
    "InfoMin",
    "Limits",
    "Method",
    "MoCo",
    "MultiCropOptions",
    "NoOptions",
    "OBoW",
    "ProjectionLoss",
    "ProjectorOptions",
    "SimCLR",
    "SimSiam",
    "Step",
    "Supervised",
    "SwAV",
    "VICReg",
    "method_class",
    "name_of",
    "option",
]

METHODS: dict[str, type[Method]] = {
    "byol": BYOL,
    "simclr": SimCLR,
    "simsiam": SimSiam,
    "moco": MoCo,
    "infomin": InfoMin,
    "barlow": BarlowTwins,
    "vicreg": VICReg,
    "supervised": Supervised,
    "swav": SwAV,
    "dino": DINO,
    "deepcluster": DeepCluster,
    "obow": OBoW,
    "distill": Distill,
}


def name_of(kind: type[Method]) -> str:
    """Return the name under which a config keeps a method: its name in `METHODS`, or package.module:Class.

    Args:
        kind: Class of the method.

    Raises:
        UserError: If the class is not at the top level of a module, so that it could not be imported again.

    Example:
        >>> hs.methods.name_of(hs.methods.MoCo)
        'moco'
    """
    if not isinstance(kind, type):
        raise UserError(f"`method` must be a class, got {kind!r}: names are for hs.methods.method_class")
    names = {known: name for name, known in METHODS.items()}
    reference = names.get(kind) or reference_to(kind)
    if reference is None:
        raise UserError(f"`method` {kind.__name__} must be at the top level of a module, so that it can be imported")
    return reference


def method_class(name: str) -> type[Method]:
    """Return the class of a method, by its name in `METHODS` or as package.module:Class.

    Args:
        name: Name of the method, without a variant such as -mhe.

    Raises:
        UserError: If there is no such method, or the class is not a `Method` with a `forward`.

    Example:
        >>> hs.methods.method_class("moco").__name__
        'MoCo'
    """
    if is_reference(name):
        duty = "forward, which computes the loss of a batch"
        return import_subclass(name, Method, duty, {"encoder", "features"})  # type: ignore[type-abstract]
    if not isinstance(name, str) or name not in METHODS:
        close = did_you_mean(str(name), METHODS)
        raise UserError(f"`method` must be one of {', '.join(METHODS)}, got {name!r}{close}")
    return METHODS[name]
