"""Losses of distributions over prototypes: SwAV's and DINO's.

Scores are B (images) × K (prototypes), one matrix for each view; the large views come first.
"""

from collections.abc import Sequence
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.distributed.collectives import all_mean, gather, mine
from hypersphere.sphere.measures import check_points
from hypersphere.sphere.sinkhorn import sinkhorn
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


def swav_loss(
    scores: Sequence[Tensor],
    temperature: float = 0.1,
    epsilon: float = 0.05,
    iterations: int = 3,
    queue: Sequence[Tensor] = (),
) -> Tensor:
    """SwAV's loss: every view predicts the codes of the two large ones (Caron et al., 2020, eq. 1 and 2).

    The codes of the first two views are made by `hs.sphere.sinkhorn`, over the images of all processes.

    Args:
        scores: Cosines of shape (B, K) of each view with the prototypes, the two large views first; any float dtype.
        temperature: Divides the scores that predict.
        epsilon: Regularization of the Sinkhorn–Knopp algorithm.
        iterations: Iterations of the Sinkhorn–Knopp algorithm.
        queue: Cosines of shape (M, K) of earlier projections of each of the two large views, which share the prototypes
            with the batch.

    Returns:
        A scalar tensor, differentiable with respect to the scores; float32 if they are half precision.

    Raises:
        TypeError: If a score is not a tensor.
        ValueError: If there are fewer than two views, or the scores are not matrices of the same shape.

    Example:
        >>> prototypes = torch.nn.functional.normalize(torch.randn(5, 16))
        >>> views = [torch.nn.functional.normalize(torch.randn(8, 16)) for _ in range(4)]
        >>> hs.losses.swav_loss([z @ prototypes.T for z in views]).shape
        torch.Size([])
    """
    _check_scores(scores, "scores")
    if queue and len(queue) != LARGE:
        raise ValueError(f"the queue must have scores of the {LARGE} large views, got {len(queue)}")
    earlier: Sequence[Tensor | None] = queue or [None] * LARGE
    codes = [_codes(now, old, epsilon, iterations) for now, old in zip(scores, earlier, strict=False)]
    return swapped_prediction(codes, scores, temperature)


@torch.no_grad()
def _codes(scores: Tensor, earlier: Tensor | None, epsilon: float, iterations: int) -> Tensor:
    new = gather(scores)
    among = new if earlier is None else torch.cat([new, earlier])
    return mine(sinkhorn(among, epsilon, iterations)[: len(new)])


def dino_loss(
    student: Sequence[Tensor],
    teacher: Sequence[Tensor],
    centre: Tensor | float = 0.0,
    temperature: float = 0.1,
    teacher_temperature: float | Tensor = 0.04,
) -> Tensor:
    """DINO's loss: every view of the student predicts the teacher's other views (Caron et al., 2021, eq. 1 and 3).

    The teacher's distribution is softmax((scores − centre) / teacher_temperature). `DINOLoss` has the moving average
    that gives the centre.

    Args:
        student: Scores of shape (B, K) of all views, the large ones first; any float dtype.
        teacher: Scores of shape (B, K) of the large views. They get no gradient.
        centre: Subtracted from the teacher's scores, of shape (K,).
        temperature: Divides the student's scores.
        teacher_temperature: Divides the teacher's scores.

    Returns:
        A scalar tensor, differentiable with respect to the student's scores; float32 if they are half precision.

    Raises:
        TypeError: If a score is not a tensor.
        ValueError: If there are fewer than two views, or the scores are not matrices of the same shape.

    Example:
        >>> student, teacher = torch.randn(4, 8, 16), torch.randn(2, 8, 16)
        >>> hs.losses.dino_loss([*student], [*teacher]).shape
        torch.Size([])
    """
    _check_scores([*teacher, *student], "scores")
    targets = [((to_full_precision(each.detach()) - centre) / teacher_temperature).softmax(dim=1) for each in teacher]
    return swapped_prediction(targets, student, temperature)


@torch.no_grad()
def move_centre(centre: Tensor, teacher: Sequence[Tensor], momentum: float) -> None:
    """Move DINO's centre towards the mean of the teacher's scores, of all processes, in place (eq. 4)."""
    centre.lerp_(all_mean(torch.cat([*teacher]).to(centre.dtype).mean(dim=0)), 1 - momentum)


def _check_scores(scores: Sequence[Tensor], name: str) -> None:
    if len(scores) < LARGE:
        raise ValueError(f"expected at least {LARGE} views, got {len(scores)}")
    for each in scores:
        check_points(each, name)
        if each.shape != scores[0].shape:
            raise ValueError(f"{name} must have the same shape, got {tuple(scores[0].shape)} and {tuple(each.shape)}")


class SwAVLoss(nn.Module):
    """`swav_loss` as a module.

    Args:
        temperature: Divides the scores that predict.
        epsilon: Regularization of the Sinkhorn–Knopp algorithm.
        iterations: Iterations of the Sinkhorn–Knopp algorithm.

    Example:
        >>> scores = torch.rand(2, 8, 5)
        >>> torch.equal(hs.losses.SwAVLoss()(scores), hs.losses.swav_loss(scores))
        True
    """

    def __init__(self, temperature: float = 0.1, epsilon: float = 0.05, iterations: int = 3) -> None:
        super().__init__()
        self.temperature, self.epsilon, self.iterations = temperature, epsilon, iterations

    def forward(self, scores: Sequence[Tensor], queue: Sequence[Tensor] = ()) -> Tensor:
        return swav_loss(scores, self.temperature, self.epsilon, self.iterations, queue)


class DINOLoss(nn.Module):
    """`dino_loss` with its centre, which is a buffer and saved with the model.

    Each call uses the centre as it was, then moves it towards the mean of the teacher's scores.

    Args:
        prototypes: Number K of prototypes.
        temperature: Divides the student's scores.
        teacher_temperature: Divides the teacher's scores. Set the attribute for a schedule.
        momentum: Decay of the moving average.

    Example:
        >>> loss = hs.losses.DINOLoss(16)
        >>> student, teacher = torch.randn(4, 8, 16), torch.randn(2, 8, 16)
        >>> value = loss(student, teacher)
        >>> torch.allclose(loss.centre, 0.1 * teacher.mean(dim=(0, 1)))
        True
    """

    centre: Tensor

    def __init__(
        self, prototypes: int, temperature: float = 0.1, teacher_temperature: float = 0.04, momentum: float = 0.9
    ) -> None:
        super().__init__()
        self.temperature, self.teacher_temperature, self.momentum = temperature, teacher_temperature, momentum
        self.register_buffer("centre", torch.zeros(prototypes))

    def forward(self, student: Sequence[Tensor], teacher: Sequence[Tensor]) -> Tensor:
        value = dino_loss(student, teacher, self.centre, self.temperature, self.teacher_temperature)
        if self.training:
            move_centre(self.centre, teacher, self.momentum)
        return value
