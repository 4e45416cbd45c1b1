"""MoCo's loss, and first-in-first-out queues of unit vectors."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.distributed.collectives import gather
from hypersphere.losses.contrastive import check_views
from hypersphere.sphere.measures import check_points
from hypersphere.sphere.pairwise import row_logsumexp
from hypersphere.sphere.unit import unit


def moco_loss(query: Tensor, key: Tensor, queue: Tensor, temperature: float | Tensor = 0.1) -> Tensor:
    """MoCo's loss: tell each query's key from the keys of earlier images (He et al., 2020, eq. 1).

    −log exp(q·k/τ) / (exp(q·k/τ) + Σⱼ exp(q·queueⱼ/τ)), the mean over queries. Keys of other images in the batch are no
    negatives; `hs.info_nce` has those. MoCo v1 published τ = 0.07, v2 0.2 for ImageNet, and 0.1 for CIFAR-10.

    Args:
        query: Queries of shape (N, D), any float dtype; rows are normalized to unit length.
        key: Keys of shape (N, D), normalized too; row i is the positive of query i. They get no gradient.
        queue: Negatives of shape (M, D), normalized too. They get no gradient.
        temperature: Divides the cosines. A tensor gets a gradient too, and then all pairs are in memory at once.

    Returns:
        A scalar tensor, differentiable with respect to `query`; float32 if the inputs are half precision.

    Raises:
        TypeError: If an input is not a tensor, or the temperature is not a number.
        ValueError: If shapes do not match, or if the temperature is not above 0.

    Example:
        >>> x = torch.eye(4)
        >>> round(hs.losses.moco_loss(x[:2], x[:2], x[2:], temperature=0.5).item(), 4)  # log(exp(2) + 2) - 2
        0.2395
    """
    temperature = check_views(query, key, temperature)
    check_points(queue, "the queue")
    if queue.shape[1] != query.shape[1]:
        raise ValueError(f"the queue must have {query.shape[1]} dimensions, as the queries do, got {queue.shape[1]}")
    query, key, queue = unit(query), unit(key.detach()), unit(queue.detach())
    positive = (query * key).sum(dim=1) / temperature
    return F.softplus(row_logsumexp(query, queue, 1 / temperature) - positive).mean()


@torch.no_grad()
def enqueue(queue: Tensor, rows: Tensor) -> None:
    """Put the newest rows first, in place; the oldest ones leave."""
    queue.copy_(torch.cat([rows.to(queue.dtype), queue])[: len(queue)])


class MoCoLoss(nn.Module):
    """`moco_loss` with its queue, which is a buffer and saved with the model.

    Each call compares with the queue as it was, then adds the keys of the batch (of all processes) to it. The queue
    starts with random directions.

    Args:
        dimensions: Dimensions D of queries and keys.
        queue: Number of earlier keys.
        temperature: Divides the cosines.

    Example:
        >>> loss = hs.losses.MoCoLoss(16, queue=64)
        >>> query, key = torch.randn(2, 8, 16)
        >>> value = loss(query, key)
        >>> torch.equal(loss.queue[:8], hs.sphere.unit(key))
        True
    """

    queue: Tensor

    def __init__(self, dimensions: int, queue: int = 4096, temperature: float = 0.1) -> None:
        super().__init__()
        self.temperature = temperature
        self.register_buffer("queue", unit(torch.randn(queue, dimensions)))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        value = moco_loss(query, key, self.queue, self.temperature)
        if self.training:
            enqueue(self.queue, unit(gather(key.detach())))
        return value
