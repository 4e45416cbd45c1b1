"""DINO's loss: match the distribution over prototypes that a teacher gives another view."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hypersphere.distributed.collectives import all_mean
from hypersphere.losses.prototypes import check_scores, swapped_prediction
from hypersphere.sphere.unit import to_full_precision


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
    check_scores([*teacher, *student], "scores")
    targets = [((to_full_precision(each.detach()) - centre) / teacher_temperature).softmax(dim=1) for each in teacher]
    return swapped_prediction(targets, student, temperature)


@torch.no_grad()
def move_centre(centre: Tensor, teacher: Sequence[Tensor], momentum: float) -> None:
    """Move DINO's centre towards the mean of the teacher's scores, of all processes, in place (eq. 4)."""
    centre.lerp_(all_mean(torch.cat([*teacher]).to(centre.dtype).mean(dim=0)), 1 - momentum)


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
