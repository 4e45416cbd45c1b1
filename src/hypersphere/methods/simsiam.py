"""SimSiam (Chen and He 2021): predict the other view's projection, which gets no gradient; no negatives, no target."""

from typing import Any

from torch import Tensor, nn

from hypersphere.methods.base import Batch, Method, Step
from hypersphere.nn import deep_mlp, each_view, mlp
from hypersphere.nn.norm import Norm, norm_layer
from hypersphere.sphere import unit


def negative_cosine(p: Tensor, z: Tensor) -> Tensor:
    """D(p, stopgrad(z)) = −p̂ · ẑ, the mean over images (eq. 1 and 3)."""
    return -(unit(p) * unit(z.detach())).sum(dim=1).mean()


class SimSiam(Method):
    """As published for CIFAR-10: SGD of lr 0.03 and weight decay 0.0005, batch 512, 800 epochs, a projector of two
    layers of 2048 with BatchNorm after either, a predictor 2048 → 512 → 2048.

    Published for ImageNet, and as here: three layers, lr 0.05, weight decay 0.0001, batch 512, 100 epochs, MoCo v2's
    augmentations, a constant learning rate of the predictor (`predictor_decays`). Different here: norms and biases have
    no weight decay, and the BatchNorm at the projector's end has a scale and a shift.
    """

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: int = 2048,
        projection: int = 2048,
        bottleneck: int = 512,
        layers: int = 2,
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
        """Those of the predictor apart where its learning rate stays at the peak."""
        groups = super().parameter_groups()
        if self.predictor_decays:
            return groups
        apart = set(self.predictor.parameters())
        rest = [{**group, "params": [p for p in group["params"] if p not in apart]} for group in groups]
        own = [{**group, "params": [p for p in group["params"] if p in apart], "fixed": True} for group in groups]
        return rest + own
