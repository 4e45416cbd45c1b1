"""Features on the circle S¹: their angles, and two densities of them (fig:uni)."""

import math

import torch
from torch import Tensor

BINS = 720  # half a degree each


def angle_counts(features: Tensor) -> Tensor:
    """Histogram of the angles of features on the circle.

    Args:
        features: Features of shape (N, 2), of any length.

    Returns:
        Counts of shape (720,): one bin for each half degree, from −π on.

    Raises:
        ValueError: If the features do not have two dimensions.

    Example:
        >>> angle_counts(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])).nonzero().flatten().tolist()
        [360, 540]
    """
    if features.ndim != 2 or features.shape[1] != 2:
        raise ValueError(f"features must have shape (N, 2), got {tuple(features.shape)}")
    angles = torch.atan2(features[:, 1], features[:, 0]).double()
    place = ((angles + math.pi) / (2 * math.pi) * BINS).long().clamp(0, BINS - 1)
    return torch.bincount(place, minlength=BINS)


def bin_angles() -> Tensor:
    """The angle in the middle of each bin of `angle_counts`, of shape (720,) in float64."""
    return -math.pi + (torch.arange(BINS, dtype=torch.float64) + 0.5) * (2 * math.pi / BINS)


def von_mises_density(counts: Tensor, at: Tensor, concentration: float = 50.0) -> Tensor:
    """Density of features on the circle: the mean of a von Mises kernel exp(κ cos(θ − θᵢ)) / 2π I₀(κ) for each.

    On the circle these are the von Mises–Fisher kernels.

    Args:
        counts: Counts of features, as `angle_counts` returns them.
        at: Angles of shape (M,) at which to compute the density.
        concentration: κ of the kernels; 50 is about 8° wide.

    Returns:
        Densities of shape (M,) in float64; their integral over the circle is 1.
    """
    weight = counts.double() / counts.sum()
    # exp(κ (cos − 1)) / I₀ₑ(κ): neither overflows for any κ
    kernels = torch.exp(concentration * (torch.cos(at.double()[:, None] - bin_angles()) - 1))
    scale = 2 * math.pi * torch.special.i0e(torch.tensor(concentration, dtype=torch.float64))
    return kernels @ weight / scale


def plane_density(counts: Tensor, grid: Tensor, bandwidth: float = 0.1) -> Tensor:
    """Gaussian kernel density of features on the circle, as points of the plane.

    Args:
        counts: Counts of features, as `angle_counts` returns them.
        grid: Coordinates of shape (M,) along both axes.
        bandwidth: Standard deviation of the kernel.

    Returns:
        Densities of shape (M, M) in float64; rows are y.
    """
    weight, angles = counts.double() / counts.sum(), bin_angles()
    along = [torch.exp(-0.5 * ((grid.double()[:, None] - f(angles)) / bandwidth) ** 2) for f in (torch.sin, torch.cos)]
    return (along[0] * weight) @ along[1].T / (2 * math.pi * bandwidth**2)
