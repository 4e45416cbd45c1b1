"""Measures of points on the sphere: energy, uniformity, alignment, effective rank.

Shapes: x and w are N (points) × D (dimensions). Half precision is computed and returned in float32.
"""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor

from hypersphere.sphere.pairwise import pair_mean, pair_means, row_logsumexp
from hypersphere.sphere.unit import needs_gradient, unit, without_autocast

Metric = Literal["euclidean", "geodesic"]
LARGEST_T = 16.0  # up to which exp(−4t), the least value of the potential, is far from underflow in float32
_POTENTIAL = {"euclidean": "riesz", "geodesic": "geodesic"}


def hyperspherical_energy(
    w: Tensor,
    s: float = 2.0,
    metric: Metric = "euclidean",
    half_space: bool = False,
    reduction: Literal["mean", "sum"] = "mean",
) -> Tensor:
    """Hyperspherical energy of the rows of a matrix: the Riesz energy of their directions (Liu et al., 2018).

    It sums ‖ŵᵢ − ŵⱼ‖^−s over the ordered pairs i ≠ j (eq:min), or the angle to the power −s (eq:min_angular). At s = 0
    the potential is −log. Lower is more even. Exact duplicates count as if they were an angle of √eps
    apart (3.5e-4 in float32), and have zero gradient.

    Args:
        w: Points of shape (N, D), any float dtype; rows are normalized to unit length.
        s: Power of the inverse distance, at least 0.
        metric: "euclidean" for the distance of the points, or "geodesic" for their angle.
        half_space: Whether to include the negatives of the rows, which makes 2N(2N − 1) pairs.
        reduction: "mean" over the ordered pairs, as in eq:mhe_reg, or "sum".

    Returns:
        A scalar tensor, differentiable with respect to `w`; float32 if `w` is half precision. 0 for a single row.

    Raises:
        TypeError: If `w` is not a tensor, or `s` is not a number without gradient.
        ValueError: If `w` is not a floating-point matrix, `s` is negative or not finite, or an option is unknown.

    Example:
        >>> hs.hyperspherical_energy(torch.eye(4)).item()  # all pairs are sqrt(2) apart
        0.5
    """
    check_energy(s, metric)
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction must be 'mean' or 'sum', got {reduction!r}")
    check_points(w, "w")
    n = len(w)
    if n < 2:
        return unit(w).sum() * 0
    (mean,) = mean_energies([w], s, metric, half_space)
    pairs = 2 * n * (2 * n - 1) if half_space else n * (n - 1)
    return mean if reduction == "mean" else mean * pairs


def mean_energies(weights: Sequence[Tensor], s: float, metric: Metric, half_space: bool) -> Tensor:
    """`hyperspherical_energy` of each matrix, computed together. Each has two rows or more of any shape (flattened)."""
    return pair_means(weights, _POTENTIAL[metric], s, half_space=half_space)


def checked_scale(name: str, value: float | Tensor) -> float | Tensor:
    """Check a positive number. The value of a tensor is not checked, because that would wait for the GPU."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"{name} must be one number, got a tensor of shape {tuple(value.shape)}")
        return value.reshape(())
    check_number(name, value)
    if not 0 < value < math.inf:  # math.isfinite stops torch.compile
        raise ValueError(f"{name} must be finite and above 0, got {value}")
    return value


def check_number(name: str, value: Any) -> None:
    if not isinstance(value, (Real, Tensor)):  # a union stops the compiler of torch 2.6
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")


def check_energy(s: float, metric: str) -> None:
    check_number("the power s", s)
    if isinstance(s, Tensor) and (s.requires_grad or s.numel() != 1):
        raise TypeError("the power s must be one number without gradient, got a tensor")
    if not 0 <= s < math.inf:
        raise ValueError(f"the power s must be finite and at least 0, got {s}")
    if metric not in _POTENTIAL:
        raise ValueError(f"metric must be 'euclidean' or 'geodesic', got {metric!r}")


def uniformity(x: Tensor, t: float | Tensor = 2.0) -> Tensor:
    """Log of the mean Gaussian potential between all pairs of features (Wang & Isola, 2020; eq:uniformity).

    It is log of the mean of exp(−t ‖x̂ᵢ − x̂ⱼ‖²) over i ≠ j. Lower is more uniform; 0 if all features coincide. A zero
    row counts as orthogonal to all others, so dead features look uniform: `hs.diagnose` reports them.

    Args:
        x: Features of shape (N, D), any float dtype; rows are normalized to unit length.
        t: Scale of the Gaussian kernel. A tensor gets a gradient too, and then all pairs are in memory at once.

    Returns:
        A scalar tensor, differentiable with respect to `x`; float32 if `x` is half precision.

    Raises:
        TypeError: If `x` is not a tensor, or `t` is not a number.
        ValueError: If `x` is not a floating-point matrix of at least two rows, or `t` is not above 0.

    Example:
        >>> round(hs.uniformity(torch.eye(4)).item(), 4)
        -4.0
    """
    check_points(x, "x")
    n = len(x)
    if n < 2:
        raise ValueError(f"uniformity needs at least two points, got {n}: there is no pair")
    t = checked_scale("t", t)
    points = unit(x)
    if points.device.type == "cpu" and not isinstance(t, Tensor) and t <= LARGEST_T:
        return pair_mean(points, "gaussian", t).log()
    return _uniformity_by_rows(points, t)


def uniformity_by_rows(x: Tensor, t: float = 2.0) -> Tensor:
    """`uniformity` in the order of operations that runs have had since version 0.1.0, so that they keep their bits."""
    return _uniformity_by_rows(unit(x), t)


def _uniformity_by_rows(points: Tensor, t: float | Tensor) -> Tensor:
    """exp(−t‖x − y‖²) = exp(2t(c − 1)), by log-sum-exp so that no t underflows."""
    n = points.shape[0]
    rows = row_logsumexp(points, points, 2 * t, exclude_self=True)
    return rows.logsumexp(0) - 2 * t - rows.new_full((), n * (n - 1)).log()


def alignment(x: Tensor, y: Tensor, alpha: float = 2.0) -> Tensor:
    """Mean distance of positive pairs, ‖x̂ᵢ − ŷᵢ‖^α (Wang & Isola, 2020; eq:align).

    Args:
        x: Features of shape (N, D), any float dtype; rows are normalized to unit length.
        y: Features of other views of the same images, of shape (N, D); normalized too.
        alpha: Power of the distance, above 0.

    Returns:
        A scalar tensor, differentiable with respect to `x` and `y`; float32 if they are half precision. 0 if all pairs
        coincide.

    Raises:
        TypeError: If an input is not a tensor, or `alpha` is not a number.
        ValueError: If the inputs are not floating-point matrices of the same shape with at least one row, or `alpha` is
            not above 0.

    Example:
        >>> hs.alignment(torch.eye(2), torch.eye(2).flip(0)).item()
        2.0
    """
    check_points(x, "x")
    check_points(y, "y")
    if x.shape != y.shape:
        raise ValueError(f"x and y must have the same shape to pair up, got {tuple(x.shape)} and {tuple(y.shape)}")
    if len(x) < 1:
        raise ValueError("alignment needs at least one pair, got none")
    check_number("alpha", alpha)
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be finite and above 0, got {alpha}")
    gap2 = (unit(x) - unit(y)).square().sum(dim=1)
    if alpha == 2:
        return gap2.mean()
    apart = gap2 != 0  # equal points have gradient 0; NaN must not vanish
    return torch.where(apart, torch.where(apart, gap2, 1).pow(alpha / 2), 0).mean()


def effective_rank(x: Tensor) -> Tensor:
    """Number of dimensions that features use: exp of the entropy of their singular values (Roy & Vetterli, 2007).

    Args:
        x: Features of shape (N, D), any float dtype; rows are normalized to unit length, and not centred.

    Returns:
        A scalar tensor between 1 and min(N, D), differentiable with respect to `x`; 1, too, if all rows are zero. NaN
        if `x` is not finite.

    Raises:
        TypeError: If `x` is not a tensor.
        ValueError: If `x` is not a floating-point matrix with at least one row.

    Example:
        >>> round(hs.effective_rank(torch.eye(4)).item(), 3)
        4.0
    """
    check_points(x, "x")
    if len(x) < 1:
        raise ValueError("effective_rank needs at least one point, got none")
    try:
        return effective_rank_of_spectrum(_singular_values(unit(x)))
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # rows that are not finite
        return unit(x).sum() * torch.nan


def _singular_values(points: Tensor) -> Tensor:
    """By the eigenvalues of XᵀX or XXᵀ in float64 on the CPU, if no gradient is needed and the points are there.

    They are more accurate than an SVD in float32, and up to four times as fast. In float32, where they would be faster
    still, they lose half of the digits: points in 3 of 256 dimensions would have rank 3.14. The slope of the square
    root is infinite at 0, which the SVD's is not. Points of Apple's MPS, which has neither an SVD nor float64, are
    copied.
    """
    if points.device.type not in ("cpu", "mps") or points.dtype == torch.float64 or needs_gradient(points):
        return torch.linalg.svdvals(points)
    wide = points.cpu().double()
    with without_autocast(wide):
        squares = wide.T @ wide if len(wide) > wide.shape[1] else wide @ wide.T
    return torch.linalg.eigvalsh(squares).clamp(min=0).sqrt().to(points)


def effective_rank_of_spectrum(singular: Tensor) -> Tensor:
    """`effective_rank` of a matrix with these singular values."""
    share = singular / singular.sum().clamp(min=torch.finfo(singular.dtype).tiny)  # all zero: rank 1, as in `rankme`
    return torch.special.entr(torch.where(share == 0, 1, share)).sum().exp()  # entr(0) = entr(1), which has a slope


def check_points(x: Tensor, name: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(x).__name__}: convert it with torch.as_tensor")
    if x.ndim != 2:
        raise ValueError(f"{name} must be points × dimensions, got shape {tuple(x.shape)}")
    if x.shape[1] == 0:
        raise ValueError(f"{name} must have at least one dimension, got shape {tuple(x.shape)}")
    if not x.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {x.dtype}")
