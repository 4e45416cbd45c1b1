"""MoCo v2 (He et al. 2020, Chen et al. 2020): tell each image's key from a queue of keys of earlier images."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.distributed.collectives import gather, size
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.nn import each_group, follow, mlp, target_of
from hypersphere.sphere import unit
from hypersphere.sphere.pairwise import row_logsumexp

GROUP = 64  # images that share BatchNorm's statistics, in batches of more; published: those of one GPU


def queue_loss(query: Tensor, key: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """−log exp(q·k/τ) / (exp(q·k/τ) + Σⱼ exp(q·queueⱼ/τ)), the mean over queries (eq. 1); rows are normalized here."""
    query, key, queue = unit(query), unit(key.detach()), unit(queue.detach())
    positive = (query * key).sum(dim=1) / temperature
    return F.softplus(row_logsumexp(query, queue, 1 / temperature) - positive).mean()


class MoCo(Method):
    """As the authors published it for CIFAR-10: SGD of lr 0.03 (for 256 images) and weight decay 0.0005, batch 512, 200
    epochs, temperature 0.1, a queue of 4096, keys by an average of decay 0.99; the first view is the query, the second
    the key.

    Published for ImageNet, and as here: lr 0.03, weight decay 0.0001, batch 256, 200 epochs, temperature 0.2, a queue
    of 65536, decay 0.999, 2048 hidden units, crops of 20 % of the area or more. Shuffled BatchNorm, on one GPU: queries
    have the statistics of groups of 64 neighbours in the batch, keys of groups that take every n-th image, so that few
    images meet in both. A batch that is no multiple of 64 is one group: then statistics tell a query and its key a
    little of each other, as without shuffling. Different here: the projector of two layers is used for CIFAR too, and
    norms and biases have no weight decay.
    """

    name = "moco"
    queue: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: int = 512,
        projection: int = 128,
        temperature: float = 0.1,
        tau: float = 0.99,
        queue: int = 4096,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = mlp(features, hidden, projection, norm="none")
        self.target = target_of(nn.Sequential(self.encoder, self.projector))
        self.register_buffer("queue", unit(torch.randn(queue, projection)))
        self.temperature, self.tau = temperature, tau

    def forward(self, batch: Batch) -> Step:
        key = self.key_of(batch.views[1])
        queries = self.queries_of(batch)
        losses = [queue_loss(query, key, self.queue, self.temperature) for query in queries]
        self.enqueue(gather(key))
        return self.step(self.name, sum(losses[1:], losses[0]) / len(losses), *queries)

    def queries_of(self, batch: Batch) -> tuple[Tensor, ...]:
        """Projections that are compared with the key: one."""
        view = batch.views[0]
        online = nn.Sequential(self.encoder, self.projector)
        return (each_group(online, view, _groups(view)),)

    @torch.no_grad()
    def key_of(self, view: Tensor) -> Tensor:
        return unit(each_group(self.target, view, _groups(view), apart=True))

    @torch.no_grad()
    def enqueue(self, key: Tensor) -> None:
        """The newest first; the oldest leave."""
        self.queue.copy_(torch.cat([key.to(self.queue.dtype), self.queue])[: len(self.queue)])

    def after_step(self, progress: float | Tensor) -> None:
        follow(self.target, nn.Sequential(self.encoder, self.projector), self.tau)


def _groups(view: Tensor) -> int:
    images = len(view) * size()
    return images // GROUP if images % GROUP == 0 else 1
