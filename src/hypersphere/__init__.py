"""Self-supervised representation learning on the unit hypersphere.

import hypersphere as hs

loss = loss + 0.125 * hs.uniformity(features)               # features spread over the sphere
regularizer = hs.EnergyRegularizer(model, weight=1.0)        # neurons spread over theirs
run = hs.pretrain("byol-mhe", data="digits"); run.encoder    # an encoder without labels
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypersphere import collectives, data, evaluate, methods, nn, optim, regularize, sphere, views  # noqa: F401
    from hypersphere.diagnosis import Diagnosis, diagnose
    from hypersphere.errors import UserError
    from hypersphere.exporting import export
    from hypersphere.grid import sweep
    from hypersphere.loading import load
    from hypersphere.pretraining import pretrain
    from hypersphere.regularize import EnergyRegularizer, OrthogonalityRegularizer
    from hypersphere.run import Run, load_run
    from hypersphere.sphere import (
        alignment,
        byol_loss,
        effective_rank,
        hyperspherical_energy,
        info_nce,
        koleo,
        nt_xent,
        sigreg,
        uniformity,
        variance_covariance,
    )

__version__ = "0.1.0"
__all__ = [
    "Diagnosis",
    "EnergyRegularizer",
    "OrthogonalityRegularizer",
    "Run",
    "UserError",
    "alignment",
    "byol_loss",
    "diagnose",
    "effective_rank",
    "export",
    "hyperspherical_energy",
    "info_nce",
    "koleo",
    "load",
    "load_run",
    "nt_xent",
    "pretrain",
    "sigreg",
    "sweep",
    "uniformity",
    "variance_covariance",
]


# for whom the names above are too few
_PACKAGES = ("collectives", "data", "evaluate", "methods", "nn", "optim", "regularize", "sphere", "views")


def _found(name: str) -> Any:
    """A public name is looked up when it is first used, so that the command line answers before torch is loaded."""
    if name in _PACKAGES:
        return import_module(f"hypersphere.{name}")
    parts = ("sphere", "regularize", "run", "pretraining", "diagnosis", "loading", "exporting", "grid", "errors")
    for part in parts if name in __all__ else ():
        module = import_module(f"hypersphere.{part}")
        if hasattr(module, name):
            globals()[name] = getattr(module, name)
            return globals()[name]
    raise AttributeError(f"module 'hypersphere' has no attribute {name!r}")


if not TYPE_CHECKING:  # else any name would seem to be there
    __getattr__ = _found


def __dir__() -> list[str]:
    return [*globals(), *__all__, *_PACKAGES]
