"""Features on the circle S¹: their angles, and two densities of them (fig:uni)."""

import math

import torch
from torch import Tensor

BINS = 720  # half a degree each


def angle_counts(features: Tensor) -> Tensor:
    """How many of N × 2 features point into each of BINS equal parts of the circle, from −π on."""
    if features.ndim != 2 or features.shape[1] != 2:
        raise ValueError(f"points on the circle have two dimensions: got features of shape {tuple(features.shape)}")
    angles = torch.atan2(features[:, 1], features[:, 0]).double()
    place = ((angles + math.pi) / (2 * math.pi) * BINS).long().clamp(0, BINS - 1)
    return torch.bincount(place, minlength=BINS)


def bin_angles() -> Tensor:
    """The middle of each part."""
    return -math.pi + (torch.arange(BINS, dtype=torch.float64) + 0.5) * (2 * math.pi / BINS)


def von_mises_density(counts: Tensor, at: Tensor, concentration: float = 50.0) -> Tensor:
    """Density at some angles of a mixture of von Mises kernels, exp(κ cos(θ − θᵢ)) / 2π I₀(κ), one for each feature.

    On the circle these are the von Mises–Fisher kernels; κ = 50 is about as wide as 8°.
    """
    weight = counts.double() / counts.sum()
    # exp(κ (cos − 1)) / I₀ₑ(κ): neither overflows for any κ
    kernels = torch.exp(concentration * (torch.cos(at.double()[:, None] - bin_angles()) - 1))
    scale = 2 * math.pi * torch.special.i0e(torch.tensor(concentration, dtype=torch.float64))
    return kernels @ weight / scale


def plane_density(counts: Tensor, grid: Tensor, bandwidth: float = 0.1) -> Tensor:
    """Gaussian kernel density of the features, as points of the plane, on grid × grid (rows are y)."""
    weight, angles = counts.double() / counts.sum(), bin_angles()
    along = [torch.exp(-0.5 * ((grid.double()[:, None] - f(angles)) / bandwidth) ** 2) for f in (torch.sin, torch.cos)]
    return (along[0] * weight) @ along[1].T / (2 * math.pi * bandwidth**2)
