"""Self-supervised representation learning on the unit hypersphere.

import hypersphere as hs

loss = loss + 0.125 * hs.uniformity(features)               # spread features over the sphere
regularizer = hs.EnergyRegularizer(model, weight=1.0)        # spread neurons over the sphere
run = hs.pretrain("byol-mhe", data="digits"); run.encoder    # train an encoder without labels
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0.dev0"

if TYPE_CHECKING:  # the table below, for type checkers and editors; a test compares the two
    from hypersphere import data as data
    from hypersphere import distributed as distributed
    from hypersphere import evaluate as evaluate
    from hypersphere import integrations as integrations
    from hypersphere import losses as losses
    from hypersphere import methods as methods
    from hypersphere import nn as nn
    from hypersphere import optim as optim
    from hypersphere import regularize as regularize
    from hypersphere import sklearn as sklearn
    from hypersphere import sphere as sphere
    from hypersphere import views as views
    from hypersphere.errors import UserError as UserError
    from hypersphere.inference.classifying import classify as classify
    from hypersphere.inference.diagnosis import Diagnosis as Diagnosis
    from hypersphere.inference.diagnosis import diagnose as diagnose
    from hypersphere.inference.embed_in_memory import embed as embed
    from hypersphere.inference.energies import compare as compare
    from hypersphere.inference.energies import energies as energies
    from hypersphere.inference.exporting import export as export
    from hypersphere.inference.loading import load as load
    from hypersphere.losses import byol_loss as byol_loss
    from hypersphere.losses import info_nce as info_nce
    from hypersphere.losses import koleo as koleo
    from hypersphere.losses import nt_xent as nt_xent
    from hypersphere.losses import sigreg as sigreg
    from hypersphere.losses import variance_covariance as variance_covariance
    from hypersphere.regularize import EnergyRegularizer as EnergyRegularizer
    from hypersphere.regularize import OrthogonalityRegularizer as OrthogonalityRegularizer
    from hypersphere.runs.pretraining import pretrain as pretrain
    from hypersphere.runs.results import load_results as load_results
    from hypersphere.runs.run import Run as Run
    from hypersphere.runs.run import load_run as load_run
    from hypersphere.sphere import alignment as alignment
    from hypersphere.sphere import effective_rank as effective_rank
    from hypersphere.sphere import hyperspherical_energy as hyperspherical_energy
    from hypersphere.sphere import uniformity as uniformity
    from hypersphere.sweeps.grid import sweep as sweep

# Every public name and its module. A name equal to its module is that package.
_PUBLIC = {
    # runs
    "pretrain": "runs.pretraining",
    "sweep": "sweeps.grid",
    "Run": "runs.run",
    "load_run": "runs.run",
    "load_results": "runs.results",
    "UserError": "errors",
    # trained encoders in use
    "load": "inference.loading",
    "embed": "inference.embed_in_memory",
    "export": "inference.exporting",
    "classify": "inference.classifying",
    "diagnose": "inference.diagnosis",
    "Diagnosis": "inference.diagnosis",
    # regularizers of weights
    "EnergyRegularizer": "regularize",
    "OrthogonalityRegularizer": "regularize",
    "energies": "inference.energies",
    "compare": "inference.energies",
    # measures and losses of features
    "hyperspherical_energy": "sphere",
    "uniformity": "sphere",
    "alignment": "sphere",
    "effective_rank": "sphere",
    "byol_loss": "losses",
    "info_nce": "losses",
    "nt_xent": "losses",
    "koleo": "losses",
    "sigreg": "losses",
    "variance_covariance": "losses",
    # packages
    "data": "data",
    "distributed": "distributed",
    "evaluate": "evaluate",
    "integrations": "integrations",
    "losses": "losses",
    "methods": "methods",
    "nn": "nn",
    "optim": "optim",
    "regularize": "regularize",
    "sklearn": "sklearn",
    "sphere": "sphere",
    "views": "views",
}


def _load(name: str) -> Any:
    """Import a public name when it is first used, so that the command line starts before torch is loaded."""
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module 'hypersphere' has no attribute {name!r}")
    found = import_module(f"hypersphere.{module}")
    globals()[name] = found if name == module else getattr(found, name)
    return globals()[name]


def __dir__() -> list[str]:
    return [*_PUBLIC, "__version__"]


if not TYPE_CHECKING:  # a type checker would accept any name, and knows the public ones by the imports above
    __getattr__ = _load
    __all__ = [name for name, module in _PUBLIC.items() if name != module]
