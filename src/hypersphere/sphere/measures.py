"""What can be measured of points on the sphere. Shapes: x and w are N (points) × D (dimensions); rows are normalized
here; half precision is computed and returned in float32."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor

from hypersphere.sphere.pairwise import pair_means, row_logsumexp
from hypersphere.sphere.unit import unit

Metric = Literal["euclidean", "geodesic"]
_POTENTIAL = {"euclidean": "riesz", "geodesic": "geodesic"}


def hyperspherical_energy(
    w: Tensor,
    s: float = 2.0,
    metric: Metric = "euclidean",
    half_space: bool = False,
    reduction: Literal["mean", "sum"] = "mean",
) -> Tensor:
    """Energy of the rows of w: Σ_{i≠j} ‖ŵᵢ − ŵⱼ‖^−s (eq:min), or of their angles (eq:min_angular); −log at s = 0.

    `reduction` "mean" divides by the number of ordered pairs, N(N−1), as eq:mhe_reg does. `half_space` also counts the
    negatives of the rows: 2N(2N−1) pairs. One row has energy 0. Duplicates count at the smallest angle told apart
    (`potentials.floor`).
    """
    check_energy(s, metric)
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction must be 'mean' or 'sum', not {reduction!r}")
    check_points(w, "w")
    n = len(w)
    if n < 2:
        return unit(w).sum() * 0
    (mean,) = mean_energies([w], s, metric, half_space)
    pairs = 2 * n * (2 * n - 1) if half_space else n * (n - 1)
    return mean if reduction == "mean" else mean * pairs


def mean_energies(weights: Sequence[Tensor], s: float, metric: Metric, half_space: bool) -> Tensor:
    """`hyperspherical_energy` of each matrix of two rows or more, dimensions after the first being one: all at once."""
    return pair_means(weights, _POTENTIAL[metric], s, half_space=half_space)


def checked_scale(name: str, value: float | Tensor) -> float | Tensor:
    """A tensor's number is not looked at: a GPU would have to be waited for."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"{name} must be one number, not {tuple(value.shape)}")
        return value.reshape(())
    check_number(name, value)
    if not 0 < value < math.inf:  # math.isfinite stops torch.compile
        raise ValueError(f"{name} must be finite and above 0, not {value}")
    return value


def check_number(name: str, value: Any) -> None:
    if not isinstance(value, (Real, Tensor)):  # a union stops the compiler of torch 2.6
        raise TypeError(f"{name} must be a number, not a {type(value).__name__}")


def check_energy(s: float, metric: str) -> None:
    check_number("the power s", s)
    if isinstance(s, Tensor) and (s.requires_grad or s.numel() != 1):
        raise TypeError("the power s is one number, without gradient")
    if not 0 <= s < math.inf:
        raise ValueError(f"the power s must be finite and at least 0, not {s}")
    if metric not in _POTENTIAL:
        raise ValueError(f"metric must be 'euclidean' or 'geodesic', not {metric!r}")


def uniformity(x: Tensor, t: float | Tensor = 2.0) -> Tensor:
    """log of the mean of exp(−t ‖x̂ᵢ − x̂ⱼ‖²) over i ≠ j (eq:uniformity); lower is more uniform, 0 is collapsed.

    A zero row is at right angles to all others, as dead features are: look at them (`diagnose`) before trusting it.
    """
    check_points(x, "x")
    n = len(x)
    if n < 2:
        raise ValueError("uniformity needs at least two points: there is no pair in one")
    t = checked_scale("t", t)
    points = unit(x)
    # exp(−t‖x − y‖²) = exp(2t(c − 1)): by log-sum-exp, so that no t underflows.
    rows = row_logsumexp(points, points, 2 * t, exclude_self=True)
    return rows.logsumexp(0) - 2 * t - rows.new_full((), n * (n - 1)).log()


def alignment(x: Tensor, y: Tensor, alpha: float = 2.0) -> Tensor:
    """Mean of ‖x̂ᵢ − ŷᵢ‖^α over the positive pairs (eq:align)."""
    check_points(x, "x")
    check_points(y, "y")
    if x.shape != y.shape:
        raise ValueError(f"x and y must pair up: got shapes {tuple(x.shape)} and {tuple(y.shape)}")
    if len(x) < 1:
        raise ValueError("alignment needs at least one pair")
    check_number("alpha", alpha)
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be finite and above 0, not {alpha}")
    gap2 = (unit(x) - unit(y)).square().sum(dim=1)
    if alpha == 2:
        return gap2.mean()
    apart = gap2 != 0  # no direction leads apart two equal points: gradient 0; NaN must not vanish
    return torch.where(apart, torch.where(apart, gap2, 1).pow(alpha / 2), 0).mean()


def effective_rank(x: Tensor) -> Tensor:
    """exp of the entropy of the normalized singular values of x̂ (not centred): between 1 and min(N, D)."""
    check_points(x, "x")
    if len(x) < 1:
        raise ValueError("effective_rank needs at least one point")
    try:
        return rank_of(torch.linalg.svdvals(unit(x)))
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # of rows that are no numbers
        return unit(x).sum() * torch.nan


def rank_of(singular: Tensor) -> Tensor:
    """`effective_rank` of a matrix of these singular values."""
    share = singular / singular.sum()
    return torch.special.entr(torch.where(share == 0, 1, share)).sum().exp()  # entr(0) = entr(1), which has a slope


def check_points(x: Tensor, name: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(x).__name__}: torch.as_tensor makes one")
    if x.ndim != 2:
        raise ValueError(f"{name} must be points × dimensions, not of shape {tuple(x.shape)}")
    if x.shape[1] == 0:
        raise ValueError(f"{name} must have a dimension or more, not shape {tuple(x.shape)}")
    if not x.is_floating_point():
        raise ValueError(f"{name} must be floating point, not {x.dtype}")
