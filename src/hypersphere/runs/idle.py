"""Options that a run takes and nothing of it looks at."""

import inspect

from hypersphere.config import Config, recipe
from hypersphere.data import Dataset
from hypersphere.methods import method_of
from hypersphere.presets import OF_METHODS, on_photographs

# field → those that mean nothing while it is 0
_OPTIONS_OF = {
    "uniformity": ("uniformity_t",),
    "energy": ("energy_s", "energy_metric", "energy_half_space", "energy_projection"),
    "orthogonality": ("orthogonality_kind",),
    "regularizer": ("regularizer_weight",),
    "small_crops": ("small_side", "small_area"),
}


def idle_options(config: Config) -> set[str]:
    """What nothing of this run looks at."""
    idle = OF_METHODS - {
        "norm",
        *inspect.signature(method_of(config.method).__init__).parameters,
    }  # a norm is the encoder's, too
    idle.update(name for switch, names in _OPTIONS_OF.items() if not getattr(config, switch) for name in names)
    if not config.energy and not config.orthogonality and not config.regularizer:
        idle.add("energy_layers")
    idle |= {"lars": set(), "sgd": {"trust"}, "adamw": {"trust", "momentum"}}[config.optimizer]
    return idle | Dataset.resolve(config).ignored


def unused_options(config: Config) -> list[str]:
    """What was chosen in vain."""
    usual = recipe(config.method, config.data, **on_photographs(config.method, config.data, config.size))
    return sorted(name for name in idle_options(config) if getattr(config, name) != getattr(usual, name))
