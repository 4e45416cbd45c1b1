"""What points that are spread evenly over the sphere S^(D−1) have, as something to compare with."""

import math
from functools import cache
from itertools import pairwise


@cache
def even_uniformity(dimensions: int) -> float:
    """log E exp(−t ‖x − y‖²) = log ₀F₁(D/2; t²) − 2t, since E exp(κ cos) = ₀F₁(D/2; κ²/4); at t = 2."""
    from scipy.special import hyp0f1

    return math.log(hyp0f1(dimensions / 2, 4)) - 4


@cache
def even_energy(dimensions: int, s: float = 2.0) -> float:
    """E θ^−s of the angle between two points, whose density is ∝ sin^(D−2) θ; infinite where D ≤ s + 1."""
    from scipy.integrate import quad

    if dimensions <= s + 1:
        return math.inf

    def weight(angle: float) -> float:
        return math.exp((dimensions - 2) * math.log(math.sin(angle))) if math.sin(angle) > 0 else 0.0

    middle = math.pi / 2
    width = min(middle, 12 / math.sqrt(dimensions))  # beyond it the density is nothing
    edges = (0.0, middle - width, middle, middle + width, math.pi)
    parts = [(low, high) for low, high in pairwise(edges) if high > low]
    above = sum(quad(lambda a: a**-s * weight(a), low, high, limit=200)[0] for low, high in parts)
    return above / sum(quad(weight, low, high, limit=200)[0] for low, high in parts)
