"""Self-supervised representation learning on the unit hypersphere.

import hypersphere as hs

loss = loss + 0.125 * hs.uniformity(features)               # features spread over the sphere
regularizer = hs.EnergyRegularizer(model, weight=1.0)        # neurons spread over theirs
run = hs.pretrain("byol-mhe", data="digits"); run.encoder    # an encoder without labels
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypersphere import data, distributed, evaluate, methods, nn, optim, regularize, sphere, views  # noqa: F401
    from hypersphere.errors import UserError
    from hypersphere.inference.diagnosis import Diagnosis, diagnose
    from hypersphere.inference.exporting import export
    from hypersphere.inference.loading import load
    from hypersphere.regularize import EnergyRegularizer, OrthogonalityRegularizer
    from hypersphere.runs.pretraining import pretrain
    from hypersphere.runs.run import Run, load_run
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
    from hypersphere.sweeps.grid import sweep

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

# module → the public names that it has
_WHERE = {
    "errors": ("UserError",),
    "inference.diagnosis": ("Diagnosis", "diagnose"),
    "inference.exporting": ("export",),
    "inference.loading": ("load",),
    "regularize": ("EnergyRegularizer", "OrthogonalityRegularizer"),
    "runs.pretraining": ("pretrain",),
    "runs.run": ("Run", "load_run"),
    "sphere": (
        "alignment",
        "byol_loss",
        "effective_rank",
        "hyperspherical_energy",
        "info_nce",
        "koleo",
        "nt_xent",
        "sigreg",
        "uniformity",
        "variance_covariance",
    ),
    "sweeps.grid": ("sweep",),
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}
# packages that are public, too; `collectives` is where `distributed` was
_PACKAGES = (
    "collectives",
    "data",
    "distributed",
    "evaluate",
    "methods",
    "nn",
    "optim",
    "regularize",
    "sphere",
    "views",
)


def _found(name: str) -> Any:
    """A public name is looked up when it is first used, so that the command line answers before torch is loaded."""
    if name in _PACKAGES:
        return import_module(f"hypersphere.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'hypersphere' has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"hypersphere.{_MODULES[name]}"), name)
    return globals()[name]


if not TYPE_CHECKING:  # else any name would seem to be there
    __getattr__ = _found


def __dir__() -> list[str]:
    return [*__all__, *(package for package in _PACKAGES if package != "collectives"), "__version__"]
