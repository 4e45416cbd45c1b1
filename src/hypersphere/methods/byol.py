"""BYOL (Grill et al. 2020), and BYOL + Uni (eq:byol+uni): predict the target's projection of the other view."""

import math

import torch
from torch import Tensor, nn

from hypersphere.methods.base import Batch, Method, Step
from hypersphere.nn import each_view, follow, mlp, target_of
from hypersphere.nn.norm import Norm
from hypersphere.sphere import byol_loss
from hypersphere.sphere import uniformity as uniformity_of


class BYOL(Method):
    """Symmetric over the two views. `uniformity` weighs the uniformity loss of the online projections, the mean of
    both views; BatchNorm's statistics are those of each view, in either network."""

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: int = 4096,
        projection: int = 256,
        norm: Norm = "batch",
        tau: float = 0.99,
        uniformity: float = 0.0,
        uniformity_t: float = 2.0,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = mlp(features, hidden, projection, norm)
        self.predictor = mlp(projection, hidden, projection, norm)
        self.target = target_of(nn.Sequential(self.encoder, self.projector))
        self.tau, self.uniformity, self.uniformity_t = tau, uniformity, uniformity_t

    def forward(self, batch: Batch) -> Step:
        z1, z2 = each_view(nn.Sequential(self.encoder, self.projector), batch.views)
        p1, p2 = each_view(self.predictor, (z1, z2))
        with torch.no_grad():
            t1, t2 = each_view(self.target, batch.views)
        loss = byol_loss(p1, t2) + byol_loss(p2, t1)
        terms = {"byol": loss.detach()}
        if self.uniformity:
            spread = (uniformity_of(z1, self.uniformity_t) + uniformity_of(z2, self.uniformity_t)) / 2
            loss = loss + self.uniformity * spread
            terms["uniformity"] = spread.detach()
        return Step(loss, terms)

    def after_step(self, progress: Tensor) -> None:
        tau = 1 - (1 - self.tau) * (torch.cos(math.pi * progress) + 1) / 2
        follow(self.target, nn.Sequential(self.encoder, self.projector), tau)
