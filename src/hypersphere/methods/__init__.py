"""Methods by name. A new one is a file here and a line below."""

from hypersphere.methods.base import Batch, Method, Step
from hypersphere.methods.byol import BYOL
from hypersphere.methods.simclr import SimCLR

__all__ = ["BYOL", "METHODS", "Batch", "Method", "SimCLR", "Step"]

METHODS: dict[str, type[Method]] = {"byol": BYOL, "simclr": SimCLR}
