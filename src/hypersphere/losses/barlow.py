"""The loss of Barlow Twins. Shapes: z1 and z2 are N (images) × D (dimensions); row i is image i."""

import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.losses.contrastive import check_views
from hypersphere.sphere.unit import to_full_precision, without_autocast


def cross_correlation(z1: Tensor, z2: Tensor) -> Tensor:
    """D × D: Cᵢⱼ = Σ z¹ᵢ z²ⱼ / √(Σ z¹ᵢ² · Σ z²ⱼ²), sums over the images of the batch, z centred over them (eq. 2)."""
    with without_autocast(z1):
        z1, z2 = (F.normalize(z - z.mean(dim=0), dim=0) for z in (to_full_precision(z1), to_full_precision(z2)))
        return z1.T @ z2


def barlow_loss(z1: Tensor, z2: Tensor, redundancy: float = 0.005) -> Tensor:
    """Barlow Twins' loss: the cross-correlation of the views approaches the identity (Zbontar et al., 2021, eq. 1).

    Σᵢ (1 − Cᵢᵢ)² + λ Σᵢ Σⱼ≠ᵢ Cᵢⱼ², **divided by the number of dimensions** D, so that it has one scale at any width.
    Multiply it by D for the published value. C is the correlation over the batch.

    Args:
        z1: First views of shape (N, D), any float dtype; columns are centred and normalized here.
        z2: Second views of the same images, of shape (N, D); centred and normalized too.
        redundancy: Weight λ of the correlations between dimensions.

    Returns:
        A scalar tensor, differentiable with respect to both inputs; float32 if they are half precision.

    Raises:
        TypeError: If an input is not a tensor.
        ValueError: If the inputs are not floating-point matrices of the same shape with two rows or more.

    Example:
        >>> z = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
        >>> round(hs.losses.barlow_loss(z, -z).item(), 4)  # (1 - (-1))² per dimension
        4.0
    """
    check_views(z1, z2)
    if len(z1) < 2:
        raise ValueError("barlow_loss needs at least two images, got one: dimensions of a single image do not vary")
    c = cross_correlation(z1, z2)
    diagonal = c.diagonal()
    invariance = (1 - diagonal).square().sum()
    redundant = c.square().sum() - diagonal.square().sum()
    return (invariance + redundancy * redundant) / len(c)


class BarlowTwinsLoss(nn.Module):
    """`barlow_loss` as a module: of two views.

    Args:
        redundancy: Weight of the correlations between dimensions.

    Example:
        >>> z1, z2 = torch.randn(2, 8, 4)
        >>> torch.equal(hs.losses.BarlowTwinsLoss(0.1)(z1, z2), hs.losses.barlow_loss(z1, z2, 0.1))
        True
    """

    def __init__(self, redundancy: float = 0.005) -> None:
        super().__init__()
        self.redundancy = redundancy

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        return barlow_loss(z1, z2, self.redundancy)
