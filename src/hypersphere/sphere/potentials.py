"""Potentials on the unit sphere: functions φ of the cosine c = x·y, each with its slope dφ/dc.

A potential is given two squared distances, chord² = ‖x − y‖² = 2 − 2c and anti² = ‖x + y‖² = 2 + 2c, because c alone
cannot tell near-duplicates (or near-opposites) apart in floating point. Slopes use d(chord²)/dc = −2.

Below the angle `floor(dtype, s)` a singular potential keeps the value and slope it has there, so exact duplicates have
a finite value and closer pairs a bounded slope.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Potential(Protocol):
    """φ and dφ/dc as functions of chord² and anti²."""

    @property
    def singular(self) -> bool: ...  # does φ grow without bound as x → y?

    def __call__(self, chord2: Tensor, anti2: Tensor) -> tuple[Tensor, Tensor]: ...


def floor(dtype: torch.dtype, s: float = 0.0) -> float:
    """θ₀, the angle down to which energies and gradients match exact arithmetic (to 1 %).

    It is √eps of the dtype (float32: 3.5e-4, float64: 1.5e-8), or larger if θ₀^(−s−2) would overflow (s > 6.9 in
    float32).
    """
    limits = torch.finfo(dtype)
    return max(limits.eps**0.5, limits.max ** (-0.8 / (s + 2)))


def near2(dtype: torch.dtype, singular: bool) -> float:
    """The chord² (or anti²) below which pairs are near, so that distances are computed from y ∓ x.

    2 − 2c has an error of about eps. Below eps^¼ that is too much for a singular potential. A smooth potential loses
    only the direction of its gradient, at much smaller distances.
    """
    return torch.finfo(dtype).eps ** (0.25 if singular else 0.75)


@dataclass(frozen=True)
class Riesz:
    """‖x − y‖^−s, and −log ‖x − y‖ at s = 0 (eq:min)."""

    s: float
    dtype: torch.dtype = torch.float32  # of the points
    singular = True

    def __call__(self, chord2: Tensor, anti2: Tensor) -> tuple[Tensor, Tensor]:
        chord2 = chord2.clamp(min=floor(self.dtype, self.s) ** 2)
        if self.s == 0:
            return -0.5 * chord2.log(), chord2.reciprocal()
        value = chord2.pow(-self.s / 2)
        return value, self.s * value / chord2


@dataclass(frozen=True)
class Geodesic:
    """θ^−s of the angle θ = arccos(x·y), and −log θ at s = 0 (eq:min_angular)."""

    s: float
    dtype: torch.dtype = torch.float32  # of the points
    singular = True

    def __call__(self, chord2: Tensor, anti2: Tensor) -> tuple[Tensor, Tensor]:
        least = floor(self.dtype, self.s) ** 2
        chord = chord2.clamp(min=least).sqrt()
        angle = 2 * torch.atan2(chord, anti2.clamp(min=0).sqrt())
        sine = chord * anti2.clamp(min=least).sqrt() / 2
        if self.s == 0:
            return -angle.log(), 1 / (angle * sine)
        value = angle.pow(-self.s)
        return value, self.s * value / (angle * sine)


@dataclass(frozen=True)
class Gaussian:
    """exp(−t ‖x − y‖²), the G2 potential at t = 2 (eq:uniformity)."""

    t: float
    dtype: torch.dtype = torch.float32
    singular = False

    def __call__(self, chord2: Tensor, anti2: Tensor) -> tuple[Tensor, Tensor]:
        value = (-self.t * chord2).exp()
        return value, 2 * self.t * value


@dataclass(frozen=True)
class HalfSpace:
    """φ(x, y) + φ(x, −y): the potential of a pair if the negative of every point is included."""

    of: Potential

    @property
    def singular(self) -> bool:
        return self.of.singular

    def __call__(self, chord2: Tensor, anti2: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = self.of(chord2, anti2)
        mirrored, mirrored_slope = self.of(anti2, chord2)
        return value + mirrored, slope - mirrored_slope


KINDS: dict[str, Callable[[float, torch.dtype], Potential]] = {
    "riesz": Riesz,
    "geodesic": Geodesic,
    "gaussian": Gaussian,
}
