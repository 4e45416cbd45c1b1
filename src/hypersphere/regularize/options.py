"""Options of a run for regularizers of the networks' weights."""

from dataclasses import dataclass
from typing import Literal

from hypersphere.util.option_fields import check, option
from hypersphere.util.references import is_reference


@dataclass(frozen=True)
class RegularizerOptions:
    """Weights and kinds of the regularizers."""

    energy: float = option(0.0, least=0)
    """Weight of the hyperspherical energy of the networks' weights (0: off)."""
    energy_s: float = option(2.0, least=0, used_if=lambda config: config.energy)
    """Power s of the energy; 0 is the logarithmic energy."""
    energy_metric: Literal["euclidean", "geodesic"] = option("geodesic", used_if=lambda config: config.energy)
    """Distance between neurons; geodesic is the angular energy."""
    energy_half_space: bool = option(False, used_if=lambda config: config.energy)
    """Whether the negatives of the neurons count, too."""
    energy_projection: int | None = option(None, least=2, used_if=lambda config: config.energy)
    """Dimensions of 20 random subspaces to average the energy over (None: the energy in the whole space)."""
    orthogonality: float = option(0.0, least=0)
    """Weight of the deviation of the networks' weights from orthonormal ones, in `energy_layers` (0: off)."""
    orthogonality_kind: Literal["soft", "srip"] = option("soft", used_if=lambda config: config.orthogonality)
    """Norm of the deviation: squared Frobenius (soft) or spectral (srip)."""
    regularizer: str | None = None
    """Regularizer of your own for the networks' weights in `energy_layers`, as package.module:Class: a subclass of
    hypersphere.regularize.WeightRegularizer."""
    regularizer_weight: float = option(1.0, least=0, used_if=lambda config: config.regularizer)
    """Weight of your own regularizer."""
    energy_layers: tuple[str, ...] = option(
        ("projector", "predictor"), used_if=lambda config: config.energy or config.orthogonality or config.regularizer
    )
    """Networks, or name patterns of layers, to regularize; heads: all networks except the encoder."""

    def __post_init__(self) -> None:
        importable = self.regularizer is None or is_reference(self.regularizer)
        check(self, "regularizer", importable, "a class of your own, as package.module:Class")
        check(self, "energy_layers", len(self.energy_layers) > 0, "at least one name")
