"""Barlow Twins (Zbontar et al. 2021): correlate each dimension across the views, and decorrelate the dimensions."""

from torch import nn

from hypersphere.distributed.collectives import gather
from hypersphere.losses import barlow_loss
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.methods.options import Count, Few, Weight
from hypersphere.methods.recipes import SMALL_HEADS, TRANSFORMER
from hypersphere.nn import deep_mlp, each_view
from hypersphere.nn.norm import Norm


class BarlowTwins(Method):
    """Barlow Twins: the cross-correlation of the two views approaches the identity matrix.

    Published for ImageNet, and as here: λ 0.005, LARS of lr 0.2 and weight decay 1.5e-6, a projector of three layers of
    8192, batch 2048, 1000 epochs, and BYOL's augmentations. The paper does not report CIFAR: here three layers of 2048
    for a ResNet-18, with BYOL's batch of 1024 and 300 epochs.

    Not adopted: norms and biases at a learning rate of 0.0048; the λ of 0.0051 in the authors' code.

    Different here: the loss is the paper's, divided by the number of dimensions D, so that it has one scale at any
    width and beside other losses. For LARS, which takes a direction from gradient and weight decay, this is a weight
    decay D times as large. Norms and biases, which LARS does not adapt, take steps some 800 times as small as there,
    where their learning rate is scaled for the undivided loss.

    Args:
        encoder: Network from images (B, C, H, W) to features (B, `features`).
        features: Width of the encoder's output.
        norm: Normalization in the projector.
        hidden: Hidden units of the projector, and of the predictor if there is one.
        projection: Outputs of the projector, and of the predictor if there is one.
        layers: Linear layers of the projector.
        redundancy: Weight λ of the correlations between dimensions.

    Example:
        >>> method = hs.methods.BarlowTwins(torch.nn.Flatten(), features=12, hidden=8, projection=4)
        >>> views = (torch.rand(6, 3, 2, 2), torch.rand(6, 3, 2, 2))
        >>> sorted(method(hs.methods.Batch(views, torch.arange(6), None)).terms)
        ['barlow']
    """

    recipes = {
        "default": {"energy_layers": ("projector",), "lr": 0.2, "weight_decay": 1.5e-6},
        "digits": {**SMALL_HEADS, "projection": 256},
        "imagenet": {"epochs": 1000, "batch": 2048, "hidden": 8192, "projection": 8192},
        "transformer": TRANSFORMER,
    }

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: Count = 2048,
        projection: Count = 2048,
        layers: Few = 3,
        norm: Norm = "batch",
        redundancy: Weight = 0.005,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = deep_mlp(features, hidden, projection, layers, norm)
        self.redundancy = redundancy

    def forward(self, batch: Batch) -> Step:
        z1, z2 = each_view(nn.Sequential(self.encoder, self.projector), batch.views)
        return self.step("barlow", barlow_loss(gather(z1), gather(z2), self.redundancy), z1, z2)
