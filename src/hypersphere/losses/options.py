"""Options of a run for losses of the projections, which any method can have besides its own."""

from dataclasses import dataclass

from hypersphere.util.option_fields import option


@dataclass(frozen=True)
class ProjectionLossOptions:
    """Weights of the losses that spread projections."""

    uniformity: float = option(0.0, least=0)
    """Weight of the uniformity loss of the projections (0: off)."""
    uniformity_t: float = option(2.0, above=0, used_if=lambda config: config.uniformity)
    """Scale t of the uniformity loss."""
    variance_covariance: float = option(0.0, least=0)
    """Weight of VICReg's variance and covariance losses of the projections (0: off)."""
    koleo: float = option(0.0, least=0)
    """Weight of the KoLeo loss, of distances to nearest neighbours, of the projections (0: off)."""
    spherical_mmd: float = option(0.0, least=0)
    """Weight of the squared maximum mean discrepancy of the projections from the uniform distribution on the sphere (0:
    off)."""
    sigreg: float = option(0.0, least=0)
    """Weight of the SIGReg loss, of the distance to a normal distribution in random directions, of the projections (0:
    off)."""
