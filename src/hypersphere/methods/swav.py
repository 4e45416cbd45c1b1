"""SwAV (Caron et al. 2020): predict the cluster assignment of a view from the other views."""

import torch
from torch import Tensor, nn

from hypersphere.distributed.collectives import gather, mine
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.methods.prototypes import Prototypes, swapped
from hypersphere.nn import each_view, mlp
from hypersphere.nn.norm import Norm
from hypersphere.sphere import sinkhorn, unit


class SwAV(Method):
    """Codes q of the two large views are made by Sinkhorn–Knopp from their cosines with the prototypes, so that all
    prototypes are used equally; every other view z predicts them by softmax(zᵀC / temperature) (eq. 1 and 2).

    Published for ImageNet, and as here: 3000 prototypes of 128 dimensions, hidden 2048, temperature 0.1, ε 0.05, three
    iterations, two crops of 224 pixels (14 % of the area or more) and six of 96 (5 to 14 %), SimCLR's changes of
    colour, LARS with batch 4096 and learning rate 4.8 (0.3 for 256), weight decay 1e-6, 800 epochs with 10 of warm-up,
    prototypes frozen for the first. With batch 256 its authors have a queue of 3840 from epoch 15 on (`codes_queue`),
    and no warm-up. On CIFAR, which they do not have: 512 prototypes, four small crops, lr 0.6, batch 1024, 300 epochs.

    Different here: the learning rate falls to 0, not to a thousandth; the queue, where there is one, is used from the
    start, when it holds random directions; the prototypes' gradient has no part along them, which normalizing after the
    update would take away to first order.
    """

    takes_small_crops = True
    queue: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: int = 2048,
        projection: int = 128,
        norm: Norm = "batch",
        prototypes: int = 512,
        temperature: float = 0.1,
        epochs: int = 300,
        epsilon: float = 0.05,
        codes_queue: int = 0,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = mlp(features, hidden, projection, norm)
        self.prototypes = Prototypes(projection, prototypes, epochs)
        self.temperature, self.epsilon = temperature, epsilon
        self.register_buffer("queue", unit(torch.randn(2, codes_queue, projection)))  # one for each large view

    def forward(self, batch: Batch) -> Step:
        z = each_view(nn.Sequential(self.encoder, self.projector), batch.views)
        scores = [self.prototypes(each) for each in z]
        codes = [self._codes(scores[view], self.queue[view]) for view in (0, 1)]
        self._remember(z[0], z[1])
        return self.step("swav", swapped(codes, scores, self.temperature), *z)

    @torch.no_grad()
    def _codes(self, scores: Tensor, queue: Tensor) -> Tensor:
        new = gather(scores)
        among = torch.cat([new, self.prototypes(queue)]) if len(queue) else new
        return mine(sinkhorn(among, self.epsilon)[: len(new)])

    @torch.no_grad()
    def _remember(self, *projections: Tensor) -> None:
        """The newest first, as many as the queue holds."""
        if not self.queue.numel():
            return
        new = torch.stack([unit(gather(z.detach())) for z in projections])
        self.queue.copy_(torch.cat([new, self.queue], dim=1)[:, : self.queue.shape[1]])

    def before_step(self, progress: float | Tensor) -> None:
        self.prototypes.before_step(progress)

    def after_step(self, progress: float | Tensor) -> None:
        self.prototypes.normalize()
