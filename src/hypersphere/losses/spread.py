"""Other losses that spread features, to compare the uniformity loss with: KoLeo, SIGReg, spherical MMD.

Shapes: x is N (points) × D (dimensions). Half precision is computed and returned in float32, under autocast too.
"""

import math

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hypersphere.sphere.evenness import even_uniformity
from hypersphere.sphere.measures import (
    check_points,
    uniformity_by_rows,
)
from hypersphere.sphere.pairwise import nearest
from hypersphere.sphere.potentials import floor
from hypersphere.sphere.unit import to_full_precision, unit, without_autocast
from hypersphere.util.random_numbers import SKETCH, normals

INTEGRAL_END, INTEGRAL_NODES = 5.0, 9  # right half of the Epps–Pulley integral: 17 nodes on [−5, 5], as published
AT_ONCE = 2**24  # cosines in memory at a time


def koleo(x: Tensor) -> Tensor:
    """KoLeo: minus the mean log distance to the nearest neighbour (Sablayrolles et al., 2019, eq. 2).

    Lower is more spread. The nearest neighbour has the greatest cosine; the search takes O(N·D) memory. Neighbours
    whose squared angles differ by at most θ₀² count as equally near, with θ₀ = √eps (float32: 3.5e-4).
    The gradient reaches both points. Below θ₀ the logarithm of the squared distance continues as its tangent, so
    duplicates have the value ½ − log θ₀ and zero gradient. A zero row has zero gradient. DINOv2 uses the weight 0.1.

    Args:
        x: Features of shape (N, D), any float dtype; rows are normalized to unit length.

    Returns:
        A scalar tensor, differentiable with respect to `x`; float32 if `x` is half precision.

    Raises:
        TypeError: If `x` is not a tensor.
        ValueError: If `x` is not a floating-point matrix of at least two rows.

    Example:
        >>> round(hs.koleo(torch.eye(4)).item(), 4)  # minus the log of sqrt(2)
        -0.3466
    """
    check_points(x, "x")
    if len(x) < 2:
        raise ValueError(f"koleo needs at least two points, got {len(x)}: one has no neighbour")
    points = unit(x)
    gap2 = (points - points[nearest(points)]).square().sum(dim=1)
    return -0.5 * _log(gap2, floor(points.dtype) ** 2).mean()


def _log(x: Tensor, least: float) -> Tensor:
    """log x; below `least`, the tangent there."""
    inside = x < least
    return torch.where(inside, math.log(least) + x / least - 1, torch.where(inside, 1, x).log())


class KoLeoLoss(nn.Module):
    """`koleo` as a module: of the features of one view.

    Example:
        >>> round(hs.losses.KoLeoLoss()(torch.eye(4)).item(), 4)
        -0.3466
    """

    def forward(self, x: Tensor) -> Tensor:
        return koleo(x)


def spherical_mmd(x: Tensor, t: float = 2.0) -> Tensor:
    """Squared maximum mean discrepancy of features from the uniform distribution on the sphere (Gretton et al., 2012).

    The kernel is k(x, y) = exp(−t ‖x − y‖²). If u is uniform, E k(x, u) = c is the same for all x. The unbiased
    estimate is therefore the mean of k over the pairs i ≠ j minus c, which is exp(`uniformity`) − c. Its gradient is
    that of `uniformity` times exp(uniformity): it fades as the features become even.

    Args:
        x: Features of shape (N, D), any float dtype; rows are normalized to unit length.
        t: Scale of the kernel.

    Returns:
        A scalar tensor, differentiable with respect to `x`; float32 if `x` is half precision. 0 on average if the
        features are uniform, and below 0 if they are more even than random ones.

    Raises:
        TypeError: If `x` is not a tensor.
        ValueError: If `x` is not a floating-point matrix of at least two rows, or `t` is not above 0.

    Example:
        >>> round(hs.losses.spherical_mmd(torch.ones(4, 16)).item(), 2)  # all features coincide: 1 - c
        0.97
    """
    check_points(x, "x")
    if len(x) < 2:
        raise ValueError(f"spherical_mmd needs at least two points, got {len(x)}: there is no pair")
    if not 0 < t < math.inf:
        raise ValueError(f"t must be finite and above 0, got {t}")
    return uniformity_by_rows(x, t).exp() - math.exp(even_uniformity(x.shape[1], t))


class SphericalMMDLoss(nn.Module):
    """`spherical_mmd` as a module: of the features of one view.

    Args:
        t: Scale of the kernel.

    Example:
        >>> round(hs.losses.SphericalMMDLoss()(torch.ones(4, 16)).item(), 2)
        0.97
    """

    def __init__(self, t: float = 2.0) -> None:
        super().__init__()
        self.t = t

    def forward(self, x: Tensor) -> Tensor:
        return spherical_mmd(x, self.t)


def sigreg(x: Tensor, directions: int = 256, seed: int = 0, step: int | Tensor = 0) -> Tensor:
    """SIGReg: distance of features from a normal law in random directions (LeJEPA; Balestriero & LeCun, 2025).

    It is the mean Epps–Pulley statistic of a·x₁ … a·x_N over random unit vectors a,
    `N ∫ |φ(t) − e^(−t²/2)|² e^(−t²/2) dt`, where φ(t) = 1/N · Σₙ e^(i t a·xₙ) is the empirical characteristic function.
    The trapezoidal rule has 17 nodes on [−5, 5]; 9 of them are computed, because the integrand is even. Memory is
    O(N · directions). The authors use 256 or 1024 directions, and the weight 0.02 against 0.98 for the distance of
    views.

    Args:
        x: Features of shape (N, D), any float dtype; rows are not normalized.
        directions: Number of random directions.
        seed: Seed of the directions.
        step: Step of the training: each step has new directions. Under a CUDA graph, a 0-dim tensor.

    Returns:
        A scalar tensor, differentiable with respect to `x`; float32 if `x` is half precision.

    Raises:
        TypeError: If `x` is not a tensor.
        ValueError: If `x` is not a floating-point matrix with at least one row, or `directions` is not a positive int.

    Example:
        >>> x = torch.randn(512, 8, generator=torch.Generator().manual_seed(0))
        >>> hs.sigreg(x).item() < 2 < hs.sigreg(3 * x).item()
        True
    """
    check_points(x, "x")
    if len(x) < 1:
        raise ValueError("sigreg needs at least one point, got none")
    if not isinstance(directions, int) or directions < 1:
        raise ValueError(f"directions must be a whole number of at least 1, got {directions}")
    points = to_full_precision(x)
    t = torch.linspace(0, INTEGRAL_END, INTEGRAL_NODES, dtype=points.dtype, device=x.device)
    normal = (-t.square() / 2).exp()
    with without_autocast(x):
        along = points @ random_directions(directions, points, seed, step).T
    real, imaginary = _characteristic(along, t)
    gap2 = (real - normal).square() + imaginary.square()
    return len(x) * 2 * torch.trapezoid(gap2 * normal, t, dim=-1).mean()


def _characteristic(along: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary part of 1/N · Σₙ e^(i t yₙ), for y of shape (N, directions) and all t: directions × nodes.

    Many points are computed in parts, and again in the backward pass, so that N × directions × nodes numbers are never
    in memory.
    """

    def parts_of(some: Tensor) -> tuple[Tensor, Tensor]:
        phase = some[..., None] * t
        return phase.cos().sum(dim=0), phase.sin().sum(dim=0)

    rows = max(1, AT_ONCE // (along.shape[1] * len(t)))
    if len(along) <= rows:
        phase = along[..., None] * t
        return phase.cos().mean(dim=0), phase.sin().mean(dim=0)
    sums = [checkpoint(parts_of, some, use_reentrant=False) for some in along.split(rows)]
    real, imaginary = (torch.stack(part).sum(dim=0) / len(along) for part in zip(*sums, strict=True))
    return real, imaginary


def random_directions(count: int, x: Tensor, seed: int, step: int | Tensor) -> Tensor:
    """`count` random unit vectors, count × D, with the dimensions, dtype and device of x (N × D)."""
    which = torch.arange(count, device=x.device)
    return unit(normals(x.shape[1], which, seed=seed, epoch=step, stream=SKETCH).to(x.dtype))


class SigregLoss(nn.Module):
    """`sigreg` with new directions at each call. The number of calls is a buffer, saved with the model.

    Args:
        directions: Number of random directions.
        seed: Seed of the directions.

    Example:
        >>> x, loss = torch.randn(64, 8), hs.losses.SigregLoss()
        >>> first, second = loss(x), loss(x)
        >>> torch.equal(first, hs.sigreg(x, step=0)), torch.equal(second, hs.sigreg(x, step=1))
        (True, True)
    """

    calls: Tensor

    def __init__(self, directions: int = 256, seed: int = 0) -> None:
        super().__init__()
        self.directions, self.seed = directions, seed
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        value = sigreg(x, self.directions, self.seed, self.calls)
        self.calls += 1
        return value
