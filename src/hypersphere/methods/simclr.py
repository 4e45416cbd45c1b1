"""SimCLR (Chen et al. 2020): tell each image's two views from the views of all other images of the batch."""

from torch import nn

from hypersphere.collectives import gather
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.nn import each_view, mlp
from hypersphere.nn.norm import Norm
from hypersphere.sphere import nt_xent


class SimCLR(Method):
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
