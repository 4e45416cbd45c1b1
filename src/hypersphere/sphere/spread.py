"""What else spreads features: terms to compare the uniformity loss with. Shapes: x is N (points) × D (dimensions); half
precision is computed and returned in float32, autocast or not."""

import math

import torch
from torch import Tensor, nn

from hypersphere.sphere.measures import check_points
from hypersphere.sphere.pairwise import nearest
from hypersphere.sphere.potentials import floor
from hypersphere.sphere.unit import unit, widen, without_autocast
from hypersphere.util.draws import SKETCH, normals

LEAST_VARIANCE = 1e-4  # VICReg's ε: √ has a finite slope where a dimension is constant
FARTHEST, NODES = 5.0, 9  # of the Epps–Pulley integral's right half: 17 nodes on [−5, 5], as published


def variance_covariance(x: Tensor, variance: float = 1.0, covariance: float = 0.04, gamma: float = 1.0) -> Tensor:
    """VICReg's v(x) and c(x), weighted (Bardes et al. 2022, eqs. 1 and 4): of the rows as they are, not normalized.

    v = 1/D · Σⱼ max(0, γ − √(Var(xⱼ) + 10⁻⁴)),  c = 1/D · Σ_{i≠j} Cov(xᵢ, xⱼ)²,  both divided by N − 1. The defaults
    weigh them 25 : 1 as published. Points all in one place have v = γ − 0.01 and no gradient, as no direction leads
    apart; a zero row is a point like any other; one dimension has no covariance. Memory is O(D²).
    """
    check_points(x, "x")
    for name, value in (("variance", variance), ("covariance", covariance), ("gamma", gamma)):
        if not 0 <= value < math.inf:  # math.isfinite stops torch.compile
            raise ValueError(f"{name} must be finite and at least 0, not {value}")
    n, d = x.shape
    if n < 2:
        raise ValueError("variance_covariance needs at least two points: one has no variance")
    points = widen(x)
    centred = points - points.mean(dim=0)
    with without_autocast(x):
        matrix = centred.T @ centred / (n - 1)
    deviation = (matrix.diagonal() + LEAST_VARIANCE).sqrt()
    others = matrix - matrix.diagonal().diag_embed()
    return variance * (gamma - deviation).relu().mean() + covariance * others.square().sum() / d


def koleo(x: Tensor) -> Tensor:
    """−1/N · Σᵢ log min_{j≠i} ‖x̂ᵢ − x̂ⱼ‖ (Sablayrolles et al. 2019, eq. 2): far from the nearest neighbour is low.

    The neighbour has the greatest cosine, searched tile by tile in O(N·D) memory. Of neighbours whose squared angles
    differ by θ₀² or less, θ₀ = `potentials.floor` (float32: 3.5e-4), any may be taken. The distance comes from x̂ᵢ − x̂ⱼ,
    and the gradient reaches both. DINOv2 weighs it by 0.1. Below θ₀ the logarithm of the squared distance goes on as
    its tangent: duplicates count ½ − log θ₀, without gradient. A zero row, whose cosine with all others is 0, has zero
    gradient.
    """
    check_points(x, "x")
    if len(x) < 2:
        raise ValueError("koleo needs at least two points: one has no neighbour")
    points = unit(x)
    gap2 = (points - points[nearest(points)]).square().sum(dim=1)
    return -0.5 * _log(gap2, floor(points.dtype) ** 2).mean()


def _log(x: Tensor, least: float) -> Tensor:
    """log x, below `least` its tangent there."""
    inside = x < least
    return torch.where(inside, math.log(least) + x / least - 1, torch.where(inside, 1, x).log())


def sigreg(x: Tensor, directions: int = 256, seed: int = 0, step: int | Tensor = 0) -> Tensor:
    """Sketched isotropic Gaussian regularization (LeJEPA, Balestriero and LeCun 2025): the Epps–Pulley statistic of
    a·x₁ … a·x_N against the standard normal law, mean over random unit vectors a. Rows are taken as they are.

    It is N ∫ |φ(t) − e^(−t²/2)|² e^(−t²/2) dt, where φ(t) = 1/N · Σₙ e^(i t a·xₙ) is the empirical characteristic
    function; by the trapezoidal rule with 17 nodes on [−5, 5], of which 9 are computed: the integrand is even. The
    directions are a function of (seed, step): give each update a step, a 0-dim tensor where a CUDA graph is recorded.
    The authors' examples have 256 or 1024 directions, and weigh it by 0.02 against 0.98 for the distance of views. Any
    N ≥ 1 and D ≥ 1 will do; duplicates and zero rows are points like any others. Memory is O(N · directions).
    """
    check_points(x, "x")
    if len(x) < 1:
        raise ValueError("sigreg needs at least one point")
    if not isinstance(directions, int) or directions < 1:
        raise ValueError(f"directions must be a whole number of at least 1, not {directions}")
    points = widen(x)
    t = torch.linspace(0, FARTHEST, NODES, dtype=points.dtype, device=x.device)
    normal = (-t.square() / 2).exp()
    with without_autocast(x):
        along = points @ random_directions(directions, points, seed, step).T
    phase = along[..., None] * t
    gap2 = (phase.cos().mean(dim=0) - normal).square() + phase.sin().mean(dim=0).square()
    return len(x) * 2 * torch.trapezoid(gap2 * normal, t, dim=-1).mean()


def random_directions(count: int, x: Tensor, seed: int, step: int | Tensor) -> Tensor:
    """`count` unit vectors of the space of x, N × D, evenly distributed."""
    which = torch.arange(count, device=x.device)
    return unit(normals(x.shape[1], which, seed=seed, epoch=step, stream=SKETCH).to(x.dtype))


class Sketching(nn.Module):
    """`sigreg` with new directions at each call; how many there were is saved with the model it is part of."""

    calls: Tensor

    def __init__(self, directions: int = 256, seed: int = 0) -> None:
        super().__init__()
        self.directions, self.seed = directions, seed
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        value = sigreg(x, self.directions, self.seed, self.calls)
        self.calls += 1
        return value
