"""Losses of predictions: BYOL's and SimSiam's. Shapes: p and z are N (images) × D (dimensions); row i is image i."""

from torch import Tensor, nn

from hypersphere.losses.contrastive import check_views
from hypersphere.sphere.measures import alignment, check_points
from hypersphere.sphere.unit import unit


def byol_loss(p: Tensor, z: Tensor) -> Tensor:
    """BYOL's loss: mean squared distance of unit predictions and targets, 2 − 2 cos(p, z) (eq:byol).

    Args:
        p: Predictions of shape (N, D), any float dtype; rows are normalized to unit length.
        z: Targets of shape (N, D), normalized too. They get no gradient.

    Returns:
        A scalar tensor between 0 and 4, differentiable with respect to `p`; float32 if the inputs are half precision.

    Raises:
        TypeError: If `p` or `z` is not a tensor.
        ValueError: If they are not floating-point matrices of the same shape, or have no rows.

    Example:
        >>> hs.byol_loss(torch.eye(2), -torch.eye(2)).item()
        4.0
    """
    check_points(z, "z")
    return alignment(p, z.detach())


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


class BYOLLoss(nn.Module):
    """`byol_loss` as a module: of predictions and targets.

    Example:
        >>> hs.losses.BYOLLoss()(torch.eye(2), -torch.eye(2)).item()
        4.0
    """

    def forward(self, p: Tensor, z: Tensor) -> Tensor:
        return byol_loss(p, z)


class NegativeCosineLoss(nn.Module):
    """`negative_cosine` as a module: of predictions and projections.

    Example:
        >>> hs.losses.NegativeCosineLoss()(torch.eye(2), torch.eye(2)).item()
        -1.0
    """

    def forward(self, p: Tensor, z: Tensor) -> Tensor:
        return negative_cosine(p, z)
