"""What losses of distributions over prototypes share.

Scores are B (images) × K (prototypes), one matrix for each view; the large views come first.
"""

from collections.abc import Sequence
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from hypersphere.sphere.measures import check_points
from hypersphere.sphere.unit import to_full_precision

LARGE = 2  # views that have targets


def swapped_prediction(targets: Sequence[Tensor], scores: Sequence[Tensor], temperature: float = 0.1) -> Tensor:
    """Mean cross-entropy over all pairs of a view's target and another view that predicts it.

    −Σₖ targetₖ · log softmax(scores / temperature)ₖ, the mean over images and pairs. SwAV, DINO and OBoW have it with
    targets of their own.

    Args:
        targets: Distributions of shape (B, K) of the first views; rows sum to 1.
        scores: Scores of shape (B, K) of all views, in the same order; any float dtype.
        temperature: Divides the scores.

    Returns:
        A scalar tensor, differentiable with respect to the scores; float32 if they are half precision.

    Raises:
        ValueError: If there is no pair of different views.

    Example:
        >>> targets, scores = [torch.eye(3)] * 2, [torch.zeros(3, 3)] * 2
        >>> round(hs.losses.swapped_prediction(targets, scores).item(), 4)  # log(3)
        1.0986
    """
    pairs = [(t, v) for t, v in product(range(len(targets)), range(len(scores))) if t != v]
    if not pairs:
        raise ValueError(f"expected at least two views, got {len(scores)}: a view does not predict itself")
    losses = [_cross_entropy(targets[t], scores[v], temperature) for t, v in pairs]
    return torch.stack(losses).mean()


def _cross_entropy(target: Tensor, scores: Tensor, temperature: float) -> Tensor:
    return -(target * F.log_softmax(to_full_precision(scores) / temperature, dim=1)).sum(dim=1).mean()


def check_scores(scores: Sequence[Tensor], name: str) -> None:
    """Refuse scores of fewer views than the large ones, or of different shapes."""
    if len(scores) < LARGE:
        raise ValueError(f"expected at least {LARGE} views, got {len(scores)}")
    for each in scores:
        check_points(each, name)
        if each.shape != scores[0].shape:
            raise ValueError(f"{name} must have the same shape, got {tuple(scores[0].shape)} and {tuple(each.shape)}")
