"""SimCLR (Chen et al. 2020): tell the two views of each image from the views of all other images in the batch."""

from torch import nn

from hypersphere.distributed.collectives import gather
from hypersphere.losses import dcl, nt_xent
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.methods.options import Count, Positive
from hypersphere.methods.recipes import SMALL_HEADS, TRANSFORMER
from hypersphere.nn import each_view, mlp
from hypersphere.nn.norm import Norm


class SimCLR(Method):
    """SimCLR with the NT-Xent loss over the batch of all processes.

    Published for ImageNet, and as here: LARS with batch 4096, learning rate 0.3 for 256 images, weight decay 1e-6,
    temperature 0.1, 100 epochs with 10 of warm-up, a projector 2048 → 2048 → 128, colour jitter of 0.8, 0.8, 0.8 and
    0.2, and blur of half the views.

    For CIFAR-10 the authors give lr 1.0, batch 512, temperature 0.5 and 1000 epochs. Here the options and heads are
    BYOL's, so that the two methods differ by their losses alone.

    Different here: the projector has no BatchNorm at its end, unlike the authors' code. BatchNorm statistics are those
    of each view, not of both together.

    Args:
        encoder: Network from images (B, C, H, W) to features (B, `features`).
        features: Width of the encoder's output.
        norm: Normalization in the projector.
        hidden: Hidden units of the projector, and of the predictor if there is one.
        projection: Outputs of the projector, and of the predictor if there is one.
        temperature: Temperature of the softmax.
        decoupled: Whether the positive is left out of the denominator, as in DCL (Yeh et al. 2022), which needs no
            large batch.

    Example:
        >>> method = hs.methods.SimCLR(torch.nn.Flatten(), features=12, hidden=8, projection=4)
        >>> views = (torch.rand(6, 3, 2, 2), torch.rand(6, 3, 2, 2))
        >>> sorted(method(hs.methods.Batch(views, torch.arange(6), None)).terms)
        ['nt_xent']
    """

    recipes = {
        "default": {"energy_layers": ("projector",)},
        "digits": SMALL_HEADS,
        "imagenet": {
            "epochs": 100,
            "batch": 4096,
            "temperature": 0.1,
            "hidden": 2048,
            "projection": 128,
            "policy": "simclr",
        },
        "transformer": TRANSFORMER,
    }

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: Count = 4096,
        projection: Count = 256,
        norm: Norm = "batch",
        temperature: Positive = 0.5,
        decoupled: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = mlp(features, hidden, projection, norm)
        self.temperature, self.decoupled = temperature, decoupled

    def forward(self, batch: Batch) -> Step:
        z1, z2 = each_view(nn.Sequential(self.encoder, self.projector), batch.views)
        name, loss = ("dcl", dcl) if self.decoupled else ("nt_xent", nt_xent)
        return self.step(name, loss(gather(z1), gather(z2), self.temperature), z1, z2)
