"""Losses between views. Shapes: p, z, query and key are N (images) × D (dimensions); row i of each is image i."""

import torch
from torch import Tensor

from hypersphere.sphere.measures import alignment, check_points, checked_scale
from hypersphere.sphere.pairwise import row_logsumexp
from hypersphere.sphere.unit import unit


def byol_loss(p: Tensor, z: Tensor) -> Tensor:
    """The mean over images of ‖p̂ − ẑ‖², which is 2 − 2 cos(p, z) (eq:byol); no gradient reaches the target z."""
    check_points(z, "z")
    return alignment(p, z.detach())


def info_nce(query: Tensor, key: Tensor, temperature: float | Tensor = 0.5, negatives: Tensor | None = None) -> Tensor:
    """−log of the softmax of each query's own key among all keys, and further negatives (eq:contrastive). A temperature
    that is a tensor has a gradient too; all pairs are in memory at once then."""
    temperature = _checked(query, key, temperature)
    if negatives is not None:
        check_points(negatives, "negatives")
        if negatives.shape[1] != key.shape[1]:
            raise ValueError(f"negatives must have {key.shape[1]} dimensions, as the keys do, not {negatives.shape[1]}")
    query, key = unit(query), unit(key)
    others = key if negatives is None else torch.cat([key, unit(negatives)])
    if len(others) < 2:
        raise ValueError("info_nce needs at least one negative: give two images or more, or negatives")
    positive = (query * key).sum(dim=1) / temperature
    wide = torch.promote_types(query.dtype, others.dtype)
    return (row_logsumexp(query.to(wide), others.to(wide), 1 / temperature) - positive).mean()


def nt_xent(z1: Tensor, z2: Tensor, temperature: float | Tensor = 0.5) -> Tensor:
    """SimCLR's loss: InfoNCE of each of the 2N views, its negatives being the 2N − 2 views of other images."""
    temperature = _checked(z1, z2, temperature)
    if len(z1) < 2:
        raise ValueError("nt_xent needs at least two images: one has no negatives")
    z1, z2 = unit(z1), unit(z2)
    points = torch.cat([z1, z2])
    positive = (z1 * z2).sum(dim=1).mean() / temperature
    return row_logsumexp(points, points, 1 / temperature, exclude_self=True).mean() - positive


def _checked(a: Tensor, b: Tensor, temperature: float | Tensor) -> float | Tensor:
    check_points(a, "the first")
    check_points(b, "the second")
    if a.shape != b.shape:
        raise ValueError(f"expected two N × D tensors of one shape, not {tuple(a.shape)} and {tuple(b.shape)}")
    return checked_scale("temperature", temperature)
