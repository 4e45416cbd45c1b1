"""Losses of two views of a batch. Shapes: p, z, z1 and z2 are N (images) × D (dimensions); row i is image i."""

import torch
import torch.nn.functional as F
from torch import Tensor

from hypersphere.sphere.losses import check_views
from hypersphere.sphere.pairwise import row_logsumexp
from hypersphere.sphere.spread import variance_covariance
from hypersphere.sphere.unit import to_full_precision, unit, without_autocast


def negative_cosine(p: Tensor, z: Tensor) -> Tensor:
    """SimSiam's loss: minus the mean cosine of predictions and projections, −p̂ · ẑ (Chen & He, 2021, eq. 1 and 3).

    `byol_loss` is 2 + 2 times as much. Published, and in `hs.methods.SimSiam`: half the sum over both directions.

    Args:
        p: Predictions of shape (N, D), any float dtype; rows are normalized to unit length.
        z: Projections of the other view, of shape (N, D); normalized too. They get no gradient.

    Returns:
        A scalar tensor between −1 and 1, differentiable with respect to `p`; float32 if the inputs are half precision.

    Raises:
        TypeError: If an input is not a tensor.
        ValueError: If the inputs are not floating-point matrices of the same shape.

    Example:
        >>> p1, p2, z1, z2 = torch.randn(4, 8, 16)
        >>> loss = (hs.losses.negative_cosine(p1, z2) + hs.losses.negative_cosine(p2, z1)) / 2
        >>> hs.losses.negative_cosine(torch.eye(2), torch.eye(2)).item()
        -1.0
    """
    check_views(p, z)
    return -(unit(p) * unit(z.detach())).sum(dim=1).mean()


def dcl(z1: Tensor, z2: Tensor, temperature: float | Tensor = 0.1) -> Tensor:
    """Decoupled contrastive loss: NT-Xent without the positive in the denominator (Yeh et al., 2022, eq. 6).

    The mean over the 2N views of −cos(z, z⁺) / τ + log Σ exp(cos(z, z⁻) / τ), over the 2N − 2 views of other images.

    Args:
        z1: First views of shape (N, D), any float dtype; rows are normalized to unit length.
        z2: Second views of the same images, of shape (N, D); normalized too.
        temperature: Divides the cosines. A tensor gets a gradient too, and then all pairs are in memory at once.

    Returns:
        A scalar tensor, differentiable with respect to all inputs; float32 if they are half precision.

    Raises:
        TypeError: If an input is not a tensor, or the temperature is not a number.
        ValueError: If shapes differ, if there are fewer than two images, or if the temperature is not above 0.

    Example:
        >>> x = torch.eye(4)
        >>> round(hs.losses.dcl(x, x, temperature=0.5).item(), 4)  # log(6) - 2
        -0.2082
    """
    temperature = check_views(z1, z2, temperature)
    if len(z1) < 2:
        raise ValueError("dcl needs at least two images, got one: a single image has no negatives")
    z1, z2 = unit(z1), unit(z2)
    scale = 1 / temperature
    within = [row_logsumexp(z, z, scale, exclude_self=True) for z in (z1, z2)]
    across = [row_logsumexp(a, b, scale, exclude_self=True) for a, b in ((z1, z2), (z2, z1))]
    negatives = torch.logaddexp(torch.cat(within), torch.cat(across)).mean()
    return negatives - (z1 * z2).sum(dim=1).mean() / temperature


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
