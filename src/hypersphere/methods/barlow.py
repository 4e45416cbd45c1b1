"""Barlow Twins (Zbontar et al. 2021): the same number in both views, and another number in each dimension."""

import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.distributed.collectives import gather
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.nn import deep_mlp, each_view
from hypersphere.nn.norm import Norm
from hypersphere.sphere.unit import widen, without_autocast


def cross_correlation(z1: Tensor, z2: Tensor) -> Tensor:
    """D × D: Cᵢⱼ = Σ z¹ᵢ z²ⱼ / √(Σ z¹ᵢ² · Σ z²ⱼ²), sums over the images of the batch, z centred over them (eq. 2)."""
    with without_autocast(z1):
        z1, z2 = (F.normalize(z - z.mean(dim=0), dim=0) for z in (widen(z1), widen(z2)))
        return z1.T @ z2


def barlow_loss(z1: Tensor, z2: Tensor, redundancy: float) -> Tensor:
    """Σᵢ (1 − Cᵢᵢ)² + λ Σᵢ Σⱼ≠ᵢ Cᵢⱼ² (eq. 1), divided by the number of dimensions."""
    c = cross_correlation(z1, z2)
    diagonal = c.diagonal()
    invariance = (1 - diagonal).square().sum()
    redundant = c.square().sum() - diagonal.square().sum()
    return (invariance + redundancy * redundant) / len(c)


class BarlowTwins(Method):
    """With λ = 0.005 and LARS of lr 0.2 and weight decay 1.5e-6, as published for ImageNet; the paper has no CIFAR.

    Published for ImageNet, and as here: a projector of three layers of 8192 (on CIFAR, for a ResNet-18, 2048), batch
    2048, 1000 epochs (on CIFAR BYOL's 1024 and 300), BYOL's augmentations. Published besides: norms and biases at a
    learning rate of 0.0048; λ 0.0051 in the authors' code. Different here: the loss is that of the paper divided by the
    number of dimensions D, so that it has one scale at any width and beside other losses. To LARS, which takes a
    direction from gradient and weight decay, that is D times the weight decay; norms and biases, which it leaves alone,
    get smaller steps by it as they do there by their learning rate.
    """

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: int = 2048,
        projection: int = 2048,
        layers: int = 3,
        norm: Norm = "batch",
        redundancy: float = 0.005,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = deep_mlp(features, hidden, projection, layers, norm)
        self.redundancy = redundancy

    def forward(self, batch: Batch) -> Step:
        z1, z2 = each_view(nn.Sequential(self.encoder, self.projector), batch.views)
        return self.step("barlow", barlow_loss(gather(z1), gather(z2), self.redundancy), z1, z2)
