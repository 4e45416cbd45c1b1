"""The seam that every method shares with the training loop."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from hypersphere.data import Batch as Batch
from hypersphere.distributed.collectives import gather, size
from hypersphere.errors import UserError
from hypersphere.nn import keep_views_apart


class Step(NamedTuple):
    loss: Tensor
    terms: dict[str, Tensor]  # for the log: detached, on the device


Features = Callable[[], Iterable[Tensor]]  # N × D, piece by piece


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
    takes_one_view = False  # or a single one
    growing: tuple[str, ...] = ()  # buffers whose shape is that of the data, known from the first epoch on

    @abstractmethod
    def forward(self, batch: Batch) -> Step: ...

    def __call__(self, batch: Batch, *args: Any, **kwargs: Any) -> Step:
        """Of several processes, in whoever's loop: every BatchNorm has the statistics of all."""
        if not hasattr(batch, "views"):
            raise UserError(f"{type(self).__name__} takes an hs.methods.Batch of views, not a {type(batch).__name__}")
        few, many = len(batch.views) < 2 - self.takes_one_view, len(batch.views) > 2 and not self.takes_small_crops
        if few or many:
            also = " (one that can learn from one says takes_one_view = True)" * few
            raise UserError(f"{type(self).__name__} learns from two views of each image, not {len(batch.views)}{also}")
        if size() > 1:
            keep_views_apart(self)
        return super().__call__(batch, *args, **kwargs)

    def step(self, name: str, loss: Tensor, *projections: Tensor) -> Step:
        """The method's own loss, and the mean over views of what spreads its (online) projections, of all processes."""
        if self.spreading and not projections:
            raise UserError(f"{type(self).__name__} gives self.step no projections: there is nothing to spread")
        terms = {name: loss.detach()}
        points = [gather(z) for z in projections] if self.spreading else []
        for spreading in self.spreading:
            value = sum((spreading.of(z) for z in points), loss.new_zeros(())) / len(points)
            loss = loss + spreading.weight * value
            terms[spreading.name] = value.detach()
        return Step(loss, terms)

    def check(self, images: int) -> None:
        """Before a run begins: a UserError, if so many images are too few to learn from."""

    def sides(self, views: Sequence[int]) -> set[int]:
        """Pixels a side of all that the encoder sees, by those of the views."""
        return set(views)

    def before_step(self, progress: float | Tensor) -> None:
        """Once before each update: what follows a schedule takes its value; `progress` is the share of all updates that
        have been made. In a run it is a 0-dim tensor on the device."""

    def after_step(self, progress: float | Tensor) -> None:
        """Once after each update, with the `progress` from before it: moving averages."""

    def start_epoch(self, features: Features | None) -> None:
        """Before each epoch; `features()` are the encoder's of all training images, for methods that cluster them."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """As optimizers take them: weights, and apart from them norms and biases, which are neither decayed nor, by
        LARS, adapted. A group that is `fixed` has the learning rate's peak all the time."""
        trained = [p for p in self.parameters() if p.requires_grad]
        return [
            {"params": [p for p in trained if p.ndim > 1]},
            {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0, "adapt": False},
        ]

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """What grows with the data first gets the size that it has there."""
        for name in self.growing:
            if prefix + name in state_dict:
                setattr(self, name, getattr(self, name).new_empty(state_dict[prefix + name].shape))
        super()._load_from_state_dict(state_dict, prefix, *rest)
