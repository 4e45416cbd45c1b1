"""SimSiam (Chen and He 2021): predict the other view's projection, without negatives or a target network."""

from typing import Any

from torch import nn

from hypersphere.losses import negative_cosine
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.methods.options import Count, Few
from hypersphere.methods.recipes import SGD, SMALL_HEADS, TRANSFORMER
from hypersphere.nn import deep_mlp, each_view, mlp
from hypersphere.nn.norm import Norm, norm_layer


class SimSiam(Method):
    """SimSiam: the projection that is predicted gets no gradient.

    Published for CIFAR-10, and as here: SGD of lr 0.03 and weight decay 0.0005, batch 512, 800 epochs, a projector of
    two layers of 2048 with BatchNorm after both, and a predictor 2048 → 512 → 2048.

    Published for ImageNet, and as here: three layers, lr 0.05, weight decay 0.0001, batch 512, 100 epochs, MoCo v2's
    augmentations, and a constant learning rate of the predictor (`predictor_decays`).

    Different here: norms and biases have no weight decay, and the BatchNorm at the projector's end has a scale and a
    shift.

    Args:
        encoder: Network from images (B, C, H, W) to features (B, `features`).
        features: Width of the encoder's output.
        norm: Normalization in the heads.
        hidden: Hidden units of the projector.
        projection: Outputs of the projector, and of the predictor if there is one.
        bottleneck: Hidden units of the predictor.
        layers: Linear layers of the projector.
        predictor_decays: Whether the predictor's learning rate decays like that of the other networks.

    Example:
        >>> method = hs.methods.SimSiam(torch.nn.Flatten(), features=12, hidden=8, projection=8, bottleneck=4)
        >>> views = (torch.rand(6, 3, 2, 2), torch.rand(6, 3, 2, 2))
        >>> sorted(method(hs.methods.Batch(views, torch.arange(6), None)).terms)
        ['simsiam']
    """

    recipes = {
        "default": {**SGD, "epochs": 800, "energy_layers": ("projector", "predictor")},
        "digits": {**SMALL_HEADS, "bottleneck": 64},
        "imagenet": {
            "epochs": 100,
            "lr": 0.05,
            "weight_decay": 1e-4,
            "layers": 3,
            "predictor_decays": False,
            "policy": "moco",
        },
        "transformer": TRANSFORMER,
    }

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: Count = 2048,
        projection: Count = 2048,
        bottleneck: Count = 512,
        layers: Few = 2,
        predictor_decays: bool = True,
        norm: Norm = "batch",
    ) -> None:
        super().__init__()
        self.encoder = encoder
        last = norm_layer(norm, projection, spatial=False)
        self.projector = nn.Sequential(deep_mlp(features, hidden, projection, layers, norm), last)
        self.predictor = mlp(projection, bottleneck, projection, norm)
        self.predictor_decays = predictor_decays

    def forward(self, batch: Batch) -> Step:
        z1, z2 = each_view(nn.Sequential(self.encoder, self.projector), batch.views)
        p1, p2 = each_view(self.predictor, (z1, z2))
        return self.step("simsiam", (negative_cosine(p1, z2) + negative_cosine(p2, z1)) / 2, z1, z2)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the groups of any method; the predictor's are separate and fixed unless `predictor_decays`."""
        groups = super().parameter_groups()
        if self.predictor_decays:
            return groups
        apart = set(self.predictor.parameters())
        rest = [{**group, "params": [p for p in group["params"] if p not in apart]} for group in groups]
        own = [{**group, "params": [p for p in group["params"] if p in apart], "fixed": True} for group in groups]
        return rest + own
