"""Options of a run that concern its optimizer."""

from dataclasses import dataclass

from hypersphere.optim import Optimizer
from hypersphere.util.option_fields import option

# for an optimizer that is not the method's: what suits ResNets with the methods here
USUAL: dict[str, dict[str, float]] = {
    "lars": {"lr": 1.5, "weight_decay": 1e-6},
    "sgd": {"lr": 0.03, "weight_decay": 5e-4},
    "adamw": {"lr": 0.001, "weight_decay": 0.05},
    "muon": {"lr": 0.004, "weight_decay": 0.01},
}


@dataclass(frozen=True)
class OptimizerOptions:
    """Optimizer, learning rate and decay."""

    optimizer: Optimizer = "lars"
    """Optimizer. Another one than the method's brings its usual learning rate and weight decay."""
    lr: float = option(1.5, above=0)
    """Peak learning rate for a batch of 256; it scales with the batch."""
    warmup: int | None = None
    """Epochs of linear warm-up before the cosine decay (None: 10, or a tenth of a shorter run)."""
    weight_decay: float = option(1e-6, least=0)
    """Weight decay; biases and norms have none."""
    weight_decay_end: float | None = option(None, least=0)
    """Weight decay at the end of the run, reached along half a cosine (None: constant)."""
    momentum: float = option(0.9, least=0, below=1, used_if=lambda config: config.optimizer != "adamw")
    """Momentum of LARS, SGD and Muon."""
    trust: float = option(0.001, above=0, used_if=lambda config: config.optimizer == "lars")
    """Step length of LARS relative to the norm of the weights."""
    clip: float | None = option(None, above=0)
    """Largest norm of each weight's gradient; longer ones are shortened to it (None: no limit)."""
