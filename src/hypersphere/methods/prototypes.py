"""What methods with prototypes share. Shapes: z B (images) × D, prototypes K × D, scores and targets B × K."""

from collections.abc import Sequence
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.sphere import unit
from hypersphere.sphere.unit import without_autocast


def cosines(z: Tensor, directions: Tensor) -> Tensor:
    """In single precision under autocast too: a temperature multiplies what rounding leaves."""
    x, y = unit(z), unit(directions)
    with without_autocast(x):
        return x @ y.T


class Prototypes(nn.Linear):
    """K directions that are learnt; of points, the cosines with each. They stay as they are in the first epoch of
    several, while what they are compared with still changes quickly (an energy of theirs, if it is wanted, moves them
    from the start)."""

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
        """After each update: unit length again."""
        self.weight.copy_(unit(self.weight))


def cross_entropy(target: Tensor, scores: Tensor, temperature: float) -> Tensor:
    """Mean over images of −Σₖ target · log softmax(scores / temperature)."""
    return -(target * F.log_softmax(scores / temperature, dim=1)).sum(dim=1).mean()


def swapped(targets: Sequence[Tensor], scores: Sequence[Tensor], temperature: float) -> Tensor:
    """Every view but the one that a target is of predicts it: the mean over these pairs of the cross-entropy."""
    pairs = [(t, v) for t, v in product(range(len(targets)), range(len(scores))) if t != v]
    losses = [cross_entropy(targets[t], scores[v], temperature) for t, v in pairs]
    return torch.stack(losses).mean()
