"""The seam that every method shares with the training loop."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from hypersphere.collectives import gather


class Batch(NamedTuple):
    views: tuple[Tensor, ...]  # each B × C × H × W, of the same B images
    sample: Tensor  # which images of the data set they are
    label: Tensor | None


class Step(NamedTuple):
    loss: Tensor
    terms: dict[str, Tensor]  # for the log: detached, on the device


class Spreading(NamedTuple):
    """A loss of the projections of one view, N × D, that any method can have besides its own."""

    name: str
    weight: float
    of: Callable[[Tensor], Tensor]


class Method(nn.Module, ABC):
    """A way to learn an encoder: `forward` gives the loss of a batch."""

    encoder: nn.Module  # what evaluation gets
    spreading: tuple[Spreading, ...] = ()
    takes_small_crops = False  # whether a batch may have more than two views
    clusters = False  # whether `start_epoch` needs the features of all images
    growing: tuple[str, ...] = ()  # buffers whose shape is that of the data, known from the first epoch on

    @abstractmethod
    def forward(self, batch: Batch) -> Step: ...

    def step(self, name: str, loss: Tensor, *projections: Tensor) -> Step:
        """The method's own loss, and the mean over views of what spreads its (online) projections, of all processes."""
        terms = {name: loss.detach()}
        points = [gather(z) for z in projections] if self.spreading else []
        for spreading in self.spreading:
            value = sum((spreading.of(z) for z in points), loss.new_zeros(())) / len(points)
            loss = loss + spreading.weight * value
            terms[spreading.name] = value.detach()
        return Step(loss, terms)

    def after_step(self, progress: Tensor) -> None:
        """Once after each update; `progress` runs from 0 to 1."""

    def start_epoch(self, features: Callable[[], Tensor] | None) -> None:
        """Before each epoch; `features()` are the encoder's of all training images, for methods that cluster them."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Weights, which are decayed, and apart from them norms and biases, which are not."""
        trained = [p for p in self.parameters() if p.requires_grad]
        return [
            {"params": [p for p in trained if p.ndim > 1], "decay": True},
            {"params": [p for p in trained if p.ndim <= 1], "decay": False},
        ]
