"""Potentials on the unit sphere inside kernels; the reference is `hypersphere.sphere.potentials`.

Each returns φ and dφ/dc from chord² = ‖x − y‖² and anti² = ‖x + y‖², at least FLOOR2 as in the reference. Comparisons
propagate NaN, so that NaN weights have a NaN energy.
"""

import triton
import triton.language as tl

RIESZ, GEODESIC, GAUSSIAN, SOFTMAX = (tl.constexpr(kind) for kind in range(4))
KINDS = {"riesz": 0, "geodesic": 1, "gaussian": 2, "softmax": 3}


@triton.jit
def at_least(x, bound):
    return tl.maximum(x, bound, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def acute_angle(gap2):
    """The angle up to π/2 of a squared chord gap2 ≤ 2: 2 asin(√gap2 / 2).

    Divided by √gap2 it is analytic in gap2. Its interpolation in 8 Chebyshev points of [0, 2] has an error of 2e-8.
    """
    ratio = 6.6939687e-6 * gap2 - 2.19937053e-5
    ratio = ratio * gap2 + 7.37692908e-5
    ratio = ratio * gap2 + 6.53569881e-5
    ratio = ratio * gap2 + 7.26263273e-4
    ratio = ratio * gap2 + 4.68007153e-3
    ratio = ratio * gap2 + 4.16673867e-2
    ratio = ratio * gap2 + 0.999999989
    return tl.sqrt(gap2) * ratio


@triton.jit
def _power(inverse, S: tl.constexpr):
    """φ = inverse^S, or log(inverse) at S = 0; and S φ (1 at S = 0) for the slope."""
    if S == 0:
        return tl.log(inverse), inverse * 0 + 1
    elif S == 1:
        return inverse, inverse
    elif S == 2:
        square = inverse * inverse
        return square, 2 * square
    else:
        value = tl.exp2(S * tl.log2(inverse))
        return value, S * value


@triton.jit
def _one_sided(chord2, anti2, KIND: tl.constexpr, S: tl.constexpr, FLOOR2: tl.constexpr):
    if KIND == GAUSSIAN:
        value = tl.exp(-S * chord2)
        return value, 2 * S * value
    elif KIND == RIESZ:
        inverse = tl.rsqrt(at_least(chord2, FLOOR2))
        value, slope = _power(inverse, S)
        return value, slope * inverse * inverse
    else:
        chord2_ = at_least(chord2, FLOOR2)
        acute = acute_angle(tl.minimum(chord2_, at_least(anti2, 0.0), propagate_nan=tl.PropagateNan.ALL))
        inverse = 1 / tl.where(chord2 <= anti2, acute, 3.14159265358979 - acute)
        value, slope = _power(inverse, S)
        return value, slope * inverse * (
            2 * tl.rsqrt(chord2_ * at_least(anti2, FLOOR2))
        )  # 1 / sin = 2 / (chord · anti)


@triton.jit
def potential(chord2, anti2, KIND: tl.constexpr, S: tl.constexpr, FLOOR2: tl.constexpr, HALF_SPACE: tl.constexpr):
    """φ and dφ/dc; with HALF_SPACE, the sum over the pair and its mirror image."""
    value, slope = _one_sided(chord2, anti2, KIND, S, FLOOR2)
    if HALF_SPACE:
        mirrored, mirrored_slope = _one_sided(anti2, chord2, KIND, S, FLOOR2)
        return value + mirrored, slope - mirrored_slope
    else:
        return value, slope
