"""Contrastive losses: InfoNCE, SimCLR's NT-Xent, and DCL.

Shapes: z1, z2, query and key are N (images) × D (dimensions); row i is image i.
"""

import torch
from torch import Tensor, nn

from hypersphere.sphere.measures import check_points, checked_scale
from hypersphere.sphere.pairwise import row_logsumexp
from hypersphere.sphere.unit import unit


def info_nce(query: Tensor, key: Tensor, temperature: float | Tensor = 0.5, negatives: Tensor | None = None) -> Tensor:
    """InfoNCE: cross-entropy of finding each query's own key among all keys (eq:contrastive).

    Args:
        query: Queries of shape (N, D), any float dtype; rows are normalized to unit length.
        key: Keys of shape (N, D), normalized too; row i is the positive of query i.
        temperature: Divides the cosines. A tensor gets a gradient too, and then all pairs are in memory at once.
        negatives: More negatives for all queries, of shape (M, D); normalized too.

    Returns:
        A scalar tensor, differentiable with respect to all inputs; float32 if they are half precision.

    Raises:
        TypeError: If an input is not a tensor, or the temperature is not a number.
        ValueError: If shapes do not match, if there is no negative, or if the temperature is not above 0.

    Example:
        >>> x = torch.eye(4)
        >>> round(hs.info_nce(x, x).item(), 4)  # log(exp(2) + 3) - 2
        0.3408
    """
    temperature = check_views(query, key, temperature)
    if negatives is not None:
        check_points(negatives, "negatives")
        if negatives.shape[1] != key.shape[1]:
            raise ValueError(f"negatives must have {key.shape[1]} dimensions, as the keys do, got {negatives.shape[1]}")
    query, key = unit(query), unit(key)
    others = key if negatives is None else torch.cat([key, unit(negatives)])
    if len(others) < 2:
        raise ValueError("info_nce needs at least one negative: pass two images or more, or `negatives`")
    positive = (query * key).sum(dim=1) / temperature
    wide = torch.promote_types(query.dtype, others.dtype)
    return (row_logsumexp(query.to(wide), others.to(wide), 1 / temperature) - positive).mean()


def nt_xent(z1: Tensor, z2: Tensor, temperature: float | Tensor = 0.5) -> Tensor:
    """SimCLR's loss: InfoNCE of each of the 2N views, with the 2N − 2 views of other images as negatives.

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
        >>> round(hs.nt_xent(x, x).item(), 4)  # log(exp(2) + 6) - 2
        0.5944
    """
    temperature = check_views(z1, z2, temperature)
    if len(z1) < 2:
        raise ValueError("nt_xent needs at least two images, got one: a single image has no negatives")
    z1, z2 = unit(z1), unit(z2)
    points = torch.cat([z1, z2])
    positive = (z1 * z2).sum(dim=1).mean() / temperature
    return row_logsumexp(points, points, 1 / temperature, exclude_self=True).mean() - positive


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


def check_views(a: Tensor, b: Tensor, temperature: float | Tensor = 1.0) -> float | Tensor:
    """Check two views and a temperature; return the temperature, as a 0-dim tensor if it is one."""
    check_points(a, "the first input")
    check_points(b, "the second input")
    if a.shape != b.shape:
        raise ValueError(f"both inputs must have the same shape N × D, got {tuple(a.shape)} and {tuple(b.shape)}")
    return checked_scale("temperature", temperature)


class InfoNCELoss(nn.Module):
    """`info_nce` as a module: of queries, keys, and optionally more negatives.

    Args:
        temperature: Divides the cosines. A tensor or a parameter gets a gradient.

    Example:
        >>> x = torch.eye(4)
        >>> torch.equal(hs.losses.InfoNCELoss(0.1)(x, x), hs.info_nce(x, x, 0.1))
        True
    """

    def __init__(self, temperature: float | Tensor = 0.5) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, query: Tensor, key: Tensor, negatives: Tensor | None = None) -> Tensor:
        return info_nce(query, key, self.temperature, negatives)


class NTXentLoss(nn.Module):
    """`nt_xent` as a module: of two views.

    Args:
        temperature: Divides the cosines. A tensor or a parameter gets a gradient.

    Example:
        >>> x = torch.eye(4)
        >>> torch.equal(hs.losses.NTXentLoss(0.1)(x, x), hs.nt_xent(x, x, 0.1))
        True
    """

    def __init__(self, temperature: float | Tensor = 0.5) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        return nt_xent(z1, z2, self.temperature)


class DCLLoss(nn.Module):
    """`dcl` as a module: of two views.

    Args:
        temperature: Divides the cosines. A tensor or a parameter gets a gradient.

    Example:
        >>> x = torch.eye(4)
        >>> torch.equal(hs.losses.DCLLoss(0.5)(x, x), hs.losses.dcl(x, x, 0.5))
        True
    """

    def __init__(self, temperature: float | Tensor = 0.1) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        return dcl(z1, z2, self.temperature)
