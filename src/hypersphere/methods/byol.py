"""BYOL (Grill et al. 2020): predict the target's projection of the other view."""

from torch import Tensor, nn

from hypersphere.methods.base import Batch, Method, Step
from hypersphere.nn import each_view, follow, meanwhile, mlp, target_of
from hypersphere.nn.norm import Norm
from hypersphere.optim import rising
from hypersphere.sphere import byol_loss


class BYOL(Method):
    """Symmetric over the two views. BatchNorm's statistics are those of each view, in either network. Without a
    predictor projections are compared with the target's as they are, which the paper found to collapse: can MHE
    replace it?

    Published for ImageNet: LARS with batch 4096, heads of 4096 and 256, 10 epochs of warm-up; by the number of epochs,
    100, 300 or 1000: learning rate 0.45, 0.3 or 0.2 for 256 images, weight decay 1e-6, 1e-6 or 1.5e-6, τ 0.99, 0.99 or
    0.996 rising to 1. Here those for 300, with batch 512. On CIFAR-10, which the authors do not have, the options of
    Durrant and Leontidis: lr 1.5, batch 1024, τ 0.99, 300 epochs.
    """

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: int = 4096,
        projection: int = 256,
        norm: Norm = "batch",
        tau: float = 0.99,
        tau_end: float = 1.0,
        predictor: bool = True,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = mlp(features, hidden, projection, norm)
        self.predictor = mlp(projection, hidden, projection, norm) if predictor else nn.Identity()
        self.target = target_of(nn.Sequential(self.encoder, self.projector))
        self.tau, self.tau_end = tau, tau_end

    def forward(self, batch: Batch) -> Step:
        with meanwhile(lambda: each_view(self.target, batch.views), batch.views[0]) as targets:
            z1, z2 = each_view(nn.Sequential(self.encoder, self.projector), batch.views)
            p1, p2 = each_view(self.predictor, (z1, z2))
        t1, t2 = targets()
        return self.step("byol", byol_loss(p1, t2) + byol_loss(p2, t1), z1, z2)

    def after_step(self, progress: float | Tensor) -> None:
        follow(self.target, nn.Sequential(self.encoder, self.projector), rising(self.tau, progress, self.tau_end))
