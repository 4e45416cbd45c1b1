"""VICReg's loss, and its terms of variance and covariance alone.

Shapes: x, z1 and z2 are N (images) × D (dimensions); row i is image i.
"""

import math

from torch import Tensor, nn

from hypersphere.losses.contrastive import check_views
from hypersphere.sphere.measures import check_points
from hypersphere.sphere.unit import to_full_precision, without_autocast

VARIANCE_EPS = 1e-4  # VICReg's ε: keeps the slope of √ finite if a dimension is constant


def vicreg_loss(
    z1: Tensor, z2: Tensor, invariance: float = 25.0, variance: float = 25.0, covariance: float = 1.0
) -> Tensor:
    """VICReg's loss: views agree, dimensions vary, and dimensions are not correlated (Bardes et al., 2022).

    As the authors' code computes it: the mean over N · D of the squared difference; the variance term v averaged over
    the views; the covariance term c summed over them. (The paper's eq. 6 sums both and does not divide the squared
    difference by D.) `hs.variance_covariance` has v and c of one view.

    Args:
        z1: First views of shape (N, D), any float dtype; rows are not normalized.
        z2: Second views of the same images, of shape (N, D).
        invariance: Weight of the mean squared difference.
        variance: Weight of v, the mean of max(0, 1 − standard deviation) over dimensions.
        covariance: Weight of c, the sum of the squared covariances between dimensions divided by D.

    Returns:
        A scalar tensor, differentiable with respect to both inputs; float32 if they are half precision.

    Raises:
        TypeError: If an input is not a tensor.
        ValueError: If the inputs are not floating-point matrices of the same shape with two rows or more, or a weight
            is negative or not finite.

    Example:
        >>> z = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
        >>> hs.losses.vicreg_loss(z, z + 2).item()  # 25 · 2²
        100.0
    """
    check_views(z1, z2)
    if not 0 <= invariance < float("inf"):
        raise ValueError(f"invariance must be finite and at least 0, got {invariance}")
    gap = (to_full_precision(z1) - to_full_precision(z2)).square().mean()
    spread = [variance_covariance(z, variance / 2, covariance) for z in (z1, z2)]
    return invariance * gap + spread[0] + spread[1]


def variance_covariance(x: Tensor, variance: float = 1.0, covariance: float = 0.04, gamma: float = 1.0) -> Tensor:
    """VICReg's variance and covariance terms, weighted (Bardes et al., 2022, eqs. 1 and 4).

    v = 1/D · Σⱼ max(0, γ − √(Var(xⱼ) + 10⁻⁴)) and c = 1/D · Σ_{i≠j} Cov(xᵢ, xⱼ)², with covariances divided by N − 1. If
    all points coincide, v is γ − 0.01 and the gradient is 0. Memory is O(D²).

    Args:
        x: Features of shape (N, D), any float dtype; rows are not normalized.
        variance: Weight of v. The defaults have the published ratio of 25 : 1.
        covariance: Weight of c.
        gamma: Standard deviation that v asks for in each dimension.

    Returns:
        A scalar tensor, differentiable with respect to `x`; float32 if `x` is half precision.

    Raises:
        TypeError: If `x` is not a tensor.
        ValueError: If `x` is not a floating-point matrix of at least two rows, or a weight is negative or not finite.

    Example:
        >>> x = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
        >>> hs.variance_covariance(x).item()
        0.0
    """
    check_points(x, "x")
    for name, value in (("variance", variance), ("covariance", covariance), ("gamma", gamma)):
        if not 0 <= value < math.inf:  # math.isfinite stops torch.compile
            raise ValueError(f"{name} must be finite and at least 0, got {value}")
    n, d = x.shape
    if n < 2:
        raise ValueError(f"variance_covariance needs at least two points, got {n}: one has no variance")
    points = to_full_precision(x)
    centred = points - points.mean(dim=0)
    with without_autocast(x):
        matrix = centred.T @ centred / (n - 1)
    deviation = (matrix.diagonal() + VARIANCE_EPS).sqrt()
    others = matrix - matrix.diagonal().diag_embed()
    return variance * (gamma - deviation).relu().mean() + covariance * others.square().sum() / d


class VICRegLoss(nn.Module):
    """`vicreg_loss` as a module: of two views.

    Args:
        invariance: Weight of the mean squared difference.
        variance: Weight of the variance term.
        covariance: Weight of the covariance term.

    Example:
        >>> z1, z2 = torch.randn(2, 8, 4)
        >>> torch.equal(hs.losses.VICRegLoss()(z1, z2), hs.losses.vicreg_loss(z1, z2))
        True
    """

    def __init__(self, invariance: float = 25.0, variance: float = 25.0, covariance: float = 1.0) -> None:
        super().__init__()
        self.invariance, self.variance, self.covariance = invariance, variance, covariance

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        return vicreg_loss(z1, z2, self.invariance, self.variance, self.covariance)


class VarianceCovarianceLoss(nn.Module):
    """`variance_covariance` as a module: of one view.

    Args:
        variance: Weight of the variance term.
        covariance: Weight of the covariance term.
        gamma: Standard deviation that the variance term asks for in each dimension.

    Example:
        >>> x = torch.randn(8, 4)
        >>> torch.equal(hs.losses.VarianceCovarianceLoss()(x), hs.variance_covariance(x))
        True
    """

    def __init__(self, variance: float = 1.0, covariance: float = 0.04, gamma: float = 1.0) -> None:
        super().__init__()
        self.variance, self.covariance, self.gamma = variance, covariance, gamma

    def forward(self, x: Tensor) -> Tensor:
        return variance_covariance(x, self.variance, self.covariance, self.gamma)
