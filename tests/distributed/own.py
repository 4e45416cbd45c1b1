"""A method as users write them: with a weight that its loss does not use, and dropout."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.methods import Batch, Method, Step
from hypersphere.nn import each_view
from hypersphere.sphere import alignment, uniformity


class Own(Method):
    dropped: list[list[float]] = []  # noqa: RUF012  by update

    def __init__(self, encoder: nn.Module, features: int) -> None:
        super().__init__()
        self.encoder, self.idle = encoder, nn.Linear(features, 4)

    def forward(self, batch: Batch) -> Step:
        z1, z2 = each_view(self.encoder, batch.views)
        mask: Tensor = F.dropout(torch.ones(64))
        self.dropped.append(mask.tolist())
        return self.step("own", alignment(z1 * mask[: z1.shape[1]], z2) + uniformity(z1), z1, z2)
