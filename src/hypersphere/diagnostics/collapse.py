"""Detects collapse of the features during training."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from hypersphere.errors import Collapsed
from hypersphere.evaluate.features import encode, frozen, without_autotuning
from hypersphere.sphere import alignment, unit
from hypersphere.sphere.measures import effective_rank_of_spectrum
from hypersphere.util.console import notify

VARIES, RANK = 0.05, 1.5  # features with a spread or an effective rank below count as collapsed
SETTLED = 22  # updates after which the initial statistics of BatchNorm weigh a tenth: (1 − 0.1)^22
REMEDIES = {  # by the option that each changes
    "norm": "`norm` batch",
    "lr": "a smaller `lr`",
    "warmup": "a longer `warmup`",
    "tau": "a `tau` nearer to 1",
    "energy": "an `energy` on the encoder",
}


def spread(x: Tensor) -> Tensor:
    """√D times the mean standard deviation of a coordinate of the normalized features.

    Args:
        x: Features of shape (N, D).

    Returns:
        A scalar tensor: 1 if the features are spread evenly, 0 if all coincide.

    Example:
        >>> spread(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])).item()
        1.1547...
    """
    return unit(x).std(dim=0).mean() * math.sqrt(x.shape[1])


def is_collapsed(seen: Mapping[str, float]) -> bool:
    """Whether `spread` or `effective_rank`, as a `SpreadMonitor` measures them, are those of collapsed features."""
    return seen["spread"] < VARIES or seen["effective_rank"] < RANK


def watched(seen: Sequence[Mapping[str, float]], epochs: int, norm: str = "batch") -> list[Mapping[str, float]]:
    """Measurements after the first tenth of a run, in which features may crowd for a while.

    With BatchNorm those of the first updates do not count either: until its running statistics follow the activations,
    features in evaluation mode may coincide, though the encoder has not collapsed.
    """
    settled = SETTLED if norm == "batch" else 0
    names, first = {"epoch", "step", "spread", "effective_rank"}, min(epochs, math.ceil(epochs / 10) + 1)
    return [line for line in seen if line.keys() >= names and line["epoch"] >= first and line["step"] >= settled]


def stays_collapsed(seen: Sequence[Mapping[str, float]], epochs: int, norm: str = "batch") -> bool:
    """Whether the last two measurements are collapsed, or the one after the last epoch."""
    last = watched(seen, epochs, norm)[-2:]
    return _both_collapsed(last) or any(is_collapsed(line) for line in last if line["epoch"] == epochs)


def _both_collapsed(last: Sequence[Mapping[str, float]]) -> bool:
    return len(last) == 2 and all(map(is_collapsed, last))


def in_words(seen: Mapping[str, float]) -> str:
    """A measurement as text."""
    return f"spread {seen['spread']:.2g} (1 is even, 0 one point), effective rank {seen['effective_rank']:.1f}"


def _effective_rank(x: Tensor) -> Tensor:
    """`effective_rank` from the eigenvalues of the smaller Gram matrix, on the CPU.

    Loading a GPU's eigenvalue solvers would take a hundred times as long.
    """
    points = unit(x).double()
    points = points.mT if len(x) < x.shape[1] else points
    products = (points.mT @ points).cpu()
    if not products.isfinite().all():  # the run has diverged, which the training loop reports
        return products.new_tensor(math.nan)
    return effective_rank_of_spectrum(torch.linalg.eigvalsh(products).clamp(min=0).sqrt())


class SpreadMonitor:
    """Measures alignment, effective rank and spread of two views of fixed images during training."""

    def __init__(self, every: int, pairs: Callable[[], Iterable[Sequence[Tensor]]], precision: torch.dtype) -> None:
        """`pairs` returns pairs of views, for some of the images at a time, from the start at each call."""
        self.every, self.pairs, self.precision = every, pairs, precision

    def __call__(self, encoder: nn.Module) -> dict[str, float]:
        with frozen(encoder), without_autotuning():
            pieces = [[encode(encoder, view, self.precision) for view in pair] for pair in self.pairs()]
            one, other = (torch.cat(side) for side in zip(*pieces, strict=True))
            found = {"alignment": alignment(one, other), "effective_rank": _effective_rank(one), "spread": spread(one)}
        return {name: float(value) for name, value in found.items()}


class CollapseAlarm:
    """Warns once, or stops the run, if two measurements in a row are collapsed.

    After the last epoch one is enough for a warning: a short run may be measured only there.
    """

    def __init__(
        self,
        epochs: int,
        stop: bool,
        seen: Sequence[Mapping[str, float]] = (),
        idle: Collection[str] = (),
        norm: str = "batch",
    ) -> None:
        """`seen` has the log of a resumed run so far, `idle` the options that do not affect this run."""
        self.epochs, self.norm, self.stop, self.warned = epochs, norm, stop, False
        self.last = watched(seen, epochs, norm)[-1:]
        self.remedies = ", ".join(advice for name, advice in REMEDIES.items() if name not in idle)

    def __call__(self, epoch: int, seen: Mapping[str, float]) -> None:
        now = watched([{**seen, "epoch": epoch}], self.epochs, self.norm)
        if not now:
            return
        two, self.last, self.warned = [*self.last, *now], now, self.warned and is_collapsed(seen)
        if self.warned or not stays_collapsed(two, self.epochs, self.norm):
            return
        self.warned = True
        message = f"the features have collapsed by epoch {epoch}: {in_words(seen)}. What usually helps: {self.remedies}"
        if self.stop and _both_collapsed(two):
            raise Collapsed(message)
        notify(message.replace("`", ""))
