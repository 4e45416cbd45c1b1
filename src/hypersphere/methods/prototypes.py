"""What methods with prototypes share. Shapes: z (B images, D), prototypes (K, D)."""

import torch
from torch import Tensor, nn

from hypersphere.sphere import unit
from hypersphere.sphere.unit import without_autocast


def cosines(z: Tensor, directions: Tensor) -> Tensor:
    """Return cosines of shape (B, K), in float32 even under autocast, because a temperature amplifies rounding."""
    x, y = unit(z), unit(directions)
    with without_autocast(x):
        return x @ y.T


class Prototypes(nn.Linear):
    """K learned directions; `forward` returns the cosines of points with each.

    They are frozen in the first of several epochs, while projections still change quickly. An energy on them moves them
    from the start.
    """

    learning: Tensor

    def __init__(self, dimensions: int, count: int, epochs: int) -> None:
        super().__init__(dimensions, count, bias=False)
        self.frozen = 1 / epochs if epochs > 1 else 0.0  # share of the run
        self.register_buffer("learning", torch.zeros((), dtype=torch.bool))
        self.normalize()

    def forward(self, z: Tensor) -> Tensor:
        return cosines(z, torch.where(self.learning, self.weight, self.weight.detach()))

    def before_step(self, progress: float | Tensor) -> None:
        self.learning.copy_(torch.as_tensor(progress >= self.frozen))

    @torch.no_grad()
    def normalize(self) -> None:
        """Scale the prototypes to unit length again. Call it after each step."""
        self.weight.copy_(unit(self.weight))
