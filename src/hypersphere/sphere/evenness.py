"""Measures of an even spread over the sphere S^(D−1), to compare others with."""

import math
from functools import cache
from itertools import pairwise

from hypersphere.sphere.measures import Metric


def even_uniformity(dimensions: int, t: float = 2.0) -> float:
    """Uniformity of points that are spread evenly over the sphere in D dimensions.

    log E exp(−t ‖x − y‖²) = log ₀F₁(D/2; t²) − 2t, since E exp(κ cos) = ₀F₁(D/2; κ²/4).

    Example:
        >>> round(even_uniformity(128), 3)
        -3.938
    """
    total = term = 1.0
    order, scale = 0, 0.0
    while term > 1e-17 * total:  # the series of ₀F₁, which torch.compile can follow
        term *= t**2 / ((dimensions / 2 + order) * (order + 1))
        total += term
        order += 1
        if total > 1e100:  # it would overflow for large t
            total, term, scale = total * 1e-100, term * 1e-100, scale + 100 * math.log(10)
    return math.log(total) + scale - 2 * t


@cache
def even_energy(dimensions: int, s: float = 2.0, metric: Metric = "geodesic") -> float:
    """Mean energy of pairs of points that are spread evenly over the sphere in D dimensions.

    It is the mean of angle^−s, or of distance^−s, or of minus the logarithm at s = 0. The density of the angle θ is
    proportional to sin^(D−2) θ. The mean is infinite if D ≤ s + 1.

    Example:
        >>> round(even_energy(128), 4)
        0.4092
    """
    from scipy.integrate import quad

    if dimensions <= s + 1:
        return math.inf

    def weight(angle: float) -> float:
        return math.exp((dimensions - 2) * math.log(math.sin(angle))) if math.sin(angle) > 0 else 0.0

    def potential(angle: float) -> float:
        distance = angle if metric == "geodesic" else 2 * math.sin(angle / 2)
        return distance**-s if s else -math.log(distance)

    middle = math.pi / 2
    width = min(middle, 12 / math.sqrt(dimensions))  # outside, the density is negligible
    edges = (0.0, middle - width, middle, middle + width, math.pi)
    parts = [(low, high) for low, high in pairwise(edges) if high > low]
    above = sum(quad(lambda a: potential(a) * weight(a), low, high, limit=200)[0] for low, high in parts)
    return above / sum(quad(weight, low, high, limit=200)[0] for low, high in parts)
