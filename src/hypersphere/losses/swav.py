"""SwAV's loss: predict the cluster assignment of a view from the other views."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hypersphere.distributed.collectives import gather, mine
from hypersphere.losses.prototypes import LARGE, check_scores, swapped_prediction
from hypersphere.sphere.sinkhorn import sinkhorn


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
    check_scores(scores, "scores")
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
