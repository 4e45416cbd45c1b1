"""SwAV (Caron et al. 2020): predict the cluster assignment of a view from the other views."""

from typing import Annotated

import torch
from torch import Tensor, nn

from hypersphere.distributed.collectives import gather
from hypersphere.losses import swav_loss
from hypersphere.losses.moco import enqueue
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.methods.options import Count, Positive, Several
from hypersphere.methods.prototypes import Prototypes
from hypersphere.methods.recipes import MULTI_CROP, SMALL_HEADS, TRANSFORMER
from hypersphere.nn import each_view, mlp
from hypersphere.nn.norm import Norm
from hypersphere.sphere import unit
from hypersphere.util.option_fields import Limits

# on ImageNet
SWAV = {**MULTI_CROP, "epochs": 800, "batch": 4096, "lr": 0.3, "prototypes": 3000, "policy": "simclr"}


class SwAV(Method):
    """SwAV: every view predicts the codes of the other large views.

    Sinkhorn–Knopp makes the codes q of the two large views from their cosines with the prototypes, so that all
    prototypes are used equally. Every other view z predicts them by softmax(zᵀC / temperature) (eq. 1 and 2).

    Published for ImageNet, and as here: 3000 prototypes of 128 dimensions, hidden 2048, temperature 0.1, ε 0.05, three
    iterations, two crops of 224 pixels (14 % of the area or more) and six of 96 (5 to 14 %), SimCLR's changes of
    colour, LARS with batch 4096 and learning rate 4.8 (0.3 for 256), weight decay 1e-6, 800 epochs with 10 of warm-up,
    and prototypes frozen in the first epoch. With batch 256 the authors use a queue of 3840 from epoch 15 on
    (`codes_queue`), and no warm-up.

    On CIFAR, which the authors do not report: 512 prototypes, four small crops, lr 0.6, batch 1024, 300 epochs.

    Different here: the learning rate decays to 0, not to a thousandth. The queue is used from the start, when it holds
    random directions. The prototypes' gradient has no part along them, which normalization after the step would remove
    to first order.

    Args:
        encoder: Network from images (B, C, H, W) to features (B, `features`).
        features: Width of the encoder's output.
        norm: Normalization in the projector.
        epochs: Epochs of the run; the prototypes are frozen in the first of several.
        hidden: Hidden units of the projector, and of the predictor if there is one.
        projection: Outputs of the projector, and of the predictor if there is one.
        prototypes: Number of prototypes.
        temperature: Temperature of the softmax.
        epsilon: Regularization ε of the Sinkhorn–Knopp algorithm.
        codes_queue: Earlier projections of each view that share the prototypes with the batch.

    Example:
        >>> method = hs.methods.SwAV(torch.nn.Flatten(), features=12, hidden=8, projection=4, prototypes=5)
        >>> views = (torch.rand(6, 3, 2, 2), torch.rand(6, 3, 2, 2))
        >>> sorted(method(hs.methods.Batch(views, torch.arange(6), None)).terms)
        ['swav']
    """

    recipes = {
        "default": {"small_crops": 4, "energy_layers": ("projector", "prototypes"), "lr": 0.6},
        "digits": {**SMALL_HEADS, "prototypes": 64, "small_crops": 0},
        "imagenet": SWAV,
        "transformer": TRANSFORMER,
    }
    takes_small_crops = True
    queue: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: Count = 2048,
        projection: Count = 128,
        norm: Norm = "batch",
        prototypes: Several = 512,
        temperature: Positive = 0.1,
        epochs: int = 300,
        epsilon: Positive = 0.05,
        codes_queue: Annotated[int, Limits(least=0)] = 0,
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
        loss = swav_loss(scores, self.temperature, self.epsilon, queue=self._earlier())
        self._remember(z[0], z[1])
        return self.step("swav", loss, *z)

    @torch.no_grad()
    def _earlier(self) -> list[Tensor]:
        """Scores of the queues of the two large views."""
        return [self.prototypes(queue) for queue in self.queue] if self.queue.numel() else []

    def _remember(self, *projections: Tensor) -> None:
        if self.queue.numel():
            for queue, z in zip(self.queue, projections, strict=True):
                enqueue(queue, unit(gather(z.detach())))

    def before_step(self, progress: float | Tensor) -> None:
        self.prototypes.before_step(progress)

    def after_step(self, progress: float | Tensor) -> None:
        self.prototypes.normalize()
