"""What methods with prototypes share. Shapes: z (B images, D), prototypes (K, D), scores and targets (B, K)."""

from collections.abc import Sequence
from itertools import product

import torch
import torch.nn.functional as F
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


def cross_entropy(target: Tensor, scores: Tensor, temperature: float) -> Tensor:
    """Return −Σₖ target · log softmax(scores / temperature), the mean over images."""
    return -(target * F.log_softmax(scores / temperature, dim=1)).sum(dim=1).mean()


def swapped(targets: Sequence[Tensor], scores: Sequence[Tensor], temperature: float) -> Tensor:
    """Return the mean cross-entropy over pairs of a target and another view that predicts it."""
    pairs = [(t, v) for t, v in product(range(len(targets)), range(len(scores))) if t != v]
    losses = [cross_entropy(targets[t], scores[v], temperature) for t, v in pairs]
    return torch.stack(losses).mean()
