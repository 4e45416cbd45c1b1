"""SimCLR (Chen et al. 2020): tell each image's two views from the views of all other images of the batch."""

from torch import nn

from hypersphere.distributed.collectives import gather
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.nn import each_view, mlp
from hypersphere.nn.norm import Norm
from hypersphere.sphere import nt_xent


class SimCLR(Method):
    """Published for ImageNet: LARS with batch 4096, learning rate 0.3 for 256 images, weight decay 1e-6, temperature
    0.1, 100 epochs with 10 of warm-up, a projector 2048 → 2048 → 128, colour jitter of 0.8, 0.8, 0.8 and 0.2 and blur
    of half the views: as here. For CIFAR-10 its authors give lr 1.0, batch 512, temperature 0.5, 1000 epochs; here the
    options of BYOL there, and its heads, so that the two differ by their losses alone. Different here: the projector
    has no BatchNorm at its end, which their code has; statistics are those of each view, there of both together.
    """

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: int = 4096,
        projection: int = 256,
        norm: Norm = "batch",
        temperature: float = 0.5,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = mlp(features, hidden, projection, norm)
        self.temperature = temperature

    def forward(self, batch: Batch) -> Step:
        z1, z2 = each_view(nn.Sequential(self.encoder, self.projector), batch.views)
        return self.step("nt_xent", nt_xent(gather(z1), gather(z2), self.temperature), z1, z2)
