"""VICReg (Bardes et al. 2022): views agree, while dimensions vary and are not correlated."""

from torch import nn

from hypersphere.distributed.collectives import gather
from hypersphere.losses import vicreg_loss
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.methods.options import Count, Few, Weight
from hypersphere.methods.recipes import SMALL_HEADS, TRANSFORMER
from hypersphere.nn import deep_mlp, each_view
from hypersphere.nn.norm import Norm


class VICReg(Method):
    """VICReg: the squared difference of the two views, with terms that keep dimensions apart and from vanishing.

    Published for ImageNet, and as here: weights 25, 25 and 1, LARS of lr 0.2 and weight decay 1e-6, a projector of
    three layers of 8192, batch 2048, 1000 epochs. The paper does not report CIFAR: here three layers of 2048 for a
    ResNet-18, with BYOL's batch of 1024, 300 epochs and augmentations.

    The loss is computed as the authors' code does: `hs.losses.vicreg_loss` says where the paper differs.

    Args:
        encoder: Network from images (B, C, H, W) to features (B, `features`).
        features: Width of the encoder's output.
        norm: Normalization in the projector.
        hidden: Hidden units of the projector.
        projection: Outputs of the projector.
        layers: Linear layers of the projector.
        invariance: Weight of the mean squared difference of the views.
        variance: Weight of the variance term, which keeps the standard deviation of each dimension above 1.
        covariance: Weight of the covariances between dimensions.

    Example:
        >>> method = hs.methods.VICReg(torch.nn.Flatten(), features=12, hidden=8, projection=4)
        >>> views = (torch.rand(6, 3, 2, 2), torch.rand(6, 3, 2, 2))
        >>> sorted(method(hs.methods.Batch(views, torch.arange(6), None)).terms)
        ['vicreg']
    """

    recipes = {
        "default": {"energy_layers": ("projector",), "lr": 0.2},
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
        invariance: Weight = 25.0,
        variance: Weight = 25.0,
        covariance: Weight = 1.0,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = deep_mlp(features, hidden, projection, layers, norm)
        self.weights = invariance, variance, covariance

    def forward(self, batch: Batch) -> Step:
        z1, z2 = each_view(nn.Sequential(self.encoder, self.projector), batch.views)
        return self.step("vicreg", vicreg_loss(gather(z1), gather(z2), *self.weights), z1, z2)
