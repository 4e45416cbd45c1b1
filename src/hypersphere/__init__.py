"""Self-supervised representation learning on the unit hypersphere.

import hypersphere as hs

loss = loss + 0.125 * hs.uniformity(features)               # features spread over the sphere
regularizer = hs.EnergyRegularizer(model, weight=1.0)        # neurons spread over theirs
run = hs.pretrain("byol-mhe", data="digits"); run.encoder    # an encoder without labels
"""

from hypersphere.regularize import EnergyRegularizer
from hypersphere.run import Run, load_run, pretrain
from hypersphere.sphere import (
    alignment,
    byol_loss,
    effective_rank,
    hyperspherical_energy,
    info_nce,
    nt_xent,
    uniformity,
)

__version__ = "0.1.0"
__all__ = [
    "EnergyRegularizer",
    "Run",
    "alignment",
    "byol_loss",
    "effective_rank",
    "hyperspherical_energy",
    "info_nce",
    "load_run",
    "nt_xent",
    "pretrain",
    "uniformity",
]
