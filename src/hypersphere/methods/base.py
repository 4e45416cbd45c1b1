"""The interface between methods and the training loop: `Batch`, `Step` and `Method`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from hypersphere.data import Batch as Batch
from hypersphere.distributed.collectives import gather, world_size
from hypersphere.errors import UserError
from hypersphere.methods.options import OptionsOfInit
from hypersphere.nn import separate_view_statistics

HEADS = "heads"  # in `energy_layers`: every sub-network except the encoder


class Step(NamedTuple):
    """What a method returns for a batch.

    Attributes:
        loss: Scalar tensor to minimize.
        terms: Parts of the loss by name, for the log: detached scalars on the device.

    Example:
        >>> loss = torch.tensor(2.0, requires_grad=True)
        >>> step = hs.methods.Step(loss, {"mine": loss.detach()})
        >>> step.terms["mine"].item()
        2.0
    """

    loss: Tensor
    terms: dict[str, Tensor]


Features = Callable[[], Iterable[Tensor]]
"""Function that yields the encoder's features of all training images in order, in parts of shape (N, D)."""


class ProjectionLoss(NamedTuple):
    """A loss of one view's projections that any method can have besides its own.

    Attributes:
        name: Name of the term in the log.
        weight: Factor of the loss.
        of: Function from projections of shape (B, D) to a scalar tensor.

    Example:
        >>> hs.methods.ProjectionLoss("uniformity", 0.125, hs.uniformity).weight
        0.125
    """

    name: str
    weight: float
    of: Callable[[Tensor], Tensor]


class Method(nn.Module, ABC):
    """A way to train an encoder. Subclasses implement `forward`, which computes the loss of a batch.

    The constructor takes `encoder` and `features` (the width of its output), the method's own options, and any of
    `classes`, `input_shape` (C, H, W), `norm`, `seed` and `epochs` by name. It must set `self.encoder`.

    Attributes:
        encoder: The network that a run trains and evaluates.
        projection_losses: Further losses of the projections, such as uniformity; `step` adds them.
        Options: Frozen dataclass of the method's options, made from the parameters of its `__init__` unless a class
            declares it.
        recipes: Options by dataset. "default" applies everywhere, "imagenet" also to other images of more than 64
            pixels a side, "transformer" if the encoder is one, any other key to the dataset of that name.
        takes_small_crops: Whether a batch may have more than two views.
        takes_one_view: Whether a batch may have a single view.
        growing: Names of buffers whose shape depends on the number of images, known from the first epoch on.

    Example:
        >>> class Align(hs.methods.Method):
        ...     def __init__(self, encoder, features, weight=1.0):
        ...         super().__init__()
        ...         self.encoder, self.weight = encoder, weight
        ...
        ...     def forward(self, batch):
        ...         z1, z2 = (self.encoder(view) for view in batch.views)
        ...         return self.step("align", self.weight * hs.alignment(z1, z2), z1, z2)
        >>> method = Align(torch.nn.Flatten(), features=12)
        >>> view = torch.rand(4, 3, 2, 2)
        >>> method(hs.methods.Batch((view, view), torch.arange(4), None)).loss.item()
        0.0
    """

    encoder: nn.Module
    projection_losses: tuple[ProjectionLoss, ...] = ()
    Options: ClassVar[Any] = OptionsOfInit()
    recipes: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    takes_small_crops: ClassVar[bool] = False
    takes_one_view: ClassVar[bool] = False
    growing: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def options_for(cls, images: int) -> dict[str, Any]:
        """Return the options whose defaults depend on the number of training images, for images of the user's own."""
        return {}

    @abstractmethod
    def forward(self, batch: Batch) -> Step:
        """Compute the loss of a batch."""

    def __call__(self, batch: Batch, *args: Any, **kwargs: Any) -> Step:
        """Check the number of views, and compute the loss. With several processes, BatchNorm sees all of them.

        Raises:
            UserError: If `batch` is not a `Batch`, or has too few or too many views.
        """
        if not hasattr(batch, "views"):
            raise UserError(f"{type(self).__name__} expects a hs.methods.Batch of views, got {type(batch).__name__}")
        few, many = len(batch.views) < 2 - self.takes_one_view, len(batch.views) > 2 and not self.takes_small_crops
        if few or many:
            hint = " (set takes_one_view = True if it can learn from one)" * few
            raise UserError(f"{type(self).__name__} expects two views of each image, got {len(batch.views)}{hint}")
        if world_size() > 1:
            separate_view_statistics(self)
        try:
            return super().__call__(batch, *args, **kwargs)
        except RuntimeError as error:
            if "shapes cannot be multiplied" in str(error) and (wrong := self._width_error(batch)):
                raise wrong from None
            raise

    def _width_error(self, batch: Batch) -> UserError | None:
        """The error for `features` that differs from the encoder's output; None if it does not, as far as is known."""
        head = getattr(self, "projector", nn.Identity())
        expected = next((layer.in_features for layer in head.modules() if isinstance(layer, nn.Linear)), None)
        with torch.no_grad():
            shape = tuple(self.encoder(batch.views[0]).shape)
        if expected is None or shape == (len(batch.views[0]), expected):
            return None
        return UserError(f"`features` is {expected}, but the encoder returns features of shape {shape}")

    def step(self, name: str, loss: Tensor, *projections: Tensor) -> Step:
        """Add `projection_losses` to the method's own loss.

        Args:
            name: Name of the method's own loss in the log.
            loss: Scalar tensor, the method's own loss.
            projections: Online projections of each view, of shape (B, D). Losses are averaged over the views, each
                computed over the projections of all processes.

        Returns:
            The `Step` with the sum of all losses and each of them as a term.

        Raises:
            UserError: If there are projection losses but no projections.
        """
        if self.projection_losses and not projections:
            raise UserError(f"{type(self).__name__} passes no projections to self.step, which its losses need")
        terms = {name: loss.detach()}
        points = [gather(z) for z in projections] if self.projection_losses else []
        for term, weight, of in self.projection_losses:
            value = sum((of(z) for z in points), loss.new_zeros(())) / len(points)
            loss = loss + weight * value
            terms[term] = value.detach()
        return Step(loss, terms)

    def check(self, images: int) -> None:
        """Raise a `UserError` if the number of training images is too small. Called before a run starts."""

    def sides(self, views: Sequence[int]) -> set[int]:
        """Return the sides in pixels of all images that the encoder sees, given those of the views."""
        return set(views)

    def before_step(self, progress: float | Tensor) -> None:
        """Update scheduled values. Called before each step.

        Args:
            progress: Share of all steps that are done. In a run it is a 0-dim tensor on the device.
        """

    def after_step(self, progress: float | Tensor) -> None:
        """Update moving averages. Called after each step, with the `progress` from before it."""

    def start_epoch(self, features: Features | None) -> None:
        """Prepare an epoch, for example by clustering. Called before each epoch.

        Args:
            features: Function that yields the encoder's features of all training images, in parts of shape (N, D).
        """

    def start_trial(self, images: int) -> None:
        """Prepare a copy of the method for steps outside of a run, which measure memory and time.

        Args:
            images: Number of training images.
        """

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return parameter groups for the optimizer.

        By default weights form one group, and norms and biases another, which has no weight decay and no adaptation by
        LARS. A group with `"fixed": True` keeps the peak learning rate during the whole run.
        """
        trained = [p for p in self.parameters() if p.requires_grad]
        return [
            {"params": [p for p in trained if p.ndim > 1]},
            {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0, "adapt": False},
        ]

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Resize the `growing` buffers to what was saved, then load."""
        for name in self.growing:
            if prefix + name in state_dict:
                setattr(self, name, getattr(self, name).new_empty(state_dict[prefix + name].shape))
        super()._load_from_state_dict(state_dict, prefix, *rest)
