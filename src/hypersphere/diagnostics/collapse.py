"""Collapse, seen while it happens: how features vary, and an alarm."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from hypersphere.errors import Collapsed
from hypersphere.evaluate.features import encode, frozen, seldom
from hypersphere.sphere import alignment, unit
from hypersphere.sphere.measures import rank_of
from hypersphere.util.progress import tell

VARIES, RANK = 0.05, 1.5  # below either, features count as collapsed
HELPS = {
    "lr": "a smaller `lr`",
    "warmup": "a longer `warmup`",
    "tau": "a `tau` nearer to 1",
    "norm": "`norm` batch",
    "energy": "an `energy` on the encoder",
}


def spread(x: Tensor) -> Tensor:
    """√D times the mean standard deviation of a coordinate of x̂: 1 of an even spread, 0 where all points are one."""
    return unit(x).std(dim=0).mean() * math.sqrt(x.shape[1])


def is_collapsed(seen: Mapping[str, float]) -> bool:
    return seen["spread"] < VARIES or seen["effective_rank"] < RANK


def watched(seen: Sequence[Mapping[str, float]], epochs: int) -> list[Mapping[str, float]]:
    """What the monitor saw after the first tenth of a run: encoders begin nearly collapsed."""
    names, first = {"epoch", "spread", "effective_rank"}, min(epochs, math.ceil(epochs / 10) + 1)
    return [line for line in seen if line.keys() >= names and line["epoch"] >= first]


def stays_collapsed(seen: Sequence[Mapping[str, float]], epochs: int) -> bool:
    """Twice in a row, at last; or when the run ends, since nothing comes after it."""
    last = watched(seen, epochs)[-2:]
    return _twice(last) or any(is_collapsed(line) for line in last if line["epoch"] == epochs)


def _twice(last: Sequence[Mapping[str, float]]) -> bool:
    return len(last) == 2 and all(map(is_collapsed, last))


def in_words(seen: Mapping[str, float]) -> str:
    return f"spread {seen['spread']:.2g} (1 is even, 0 one point), effective rank {seen['effective_rank']:.1f}"


def _rank(x: Tensor) -> Tensor:
    """`effective_rank`, by the eigenvalues of the products of points or of coordinates, whichever are fewer: on the CPU
    they take a hundredth of the second in which a GPU's solvers are loaded."""
    points = unit(x).double()
    points = points.mT if len(x) < x.shape[1] else points
    products = (points.mT @ points).cpu()
    if not products.isfinite().all():  # of a run that is about to be told that it diverged
        return products.new_tensor(math.nan)
    return rank_of(torch.linalg.eigvalsh(products).clamp(min=0).sqrt())


class SpreadMonitor:
    """During training: of two views of fixed images, alignment, effective rank and spread."""

    def __init__(self, every: int, pairs: Callable[[], Iterable[Sequence[Tensor]]], precision: torch.dtype) -> None:
        """`pairs`: of views, a piece of the images at a time, made anew each time."""
        self.every, self.pairs, self.precision = every, pairs, precision

    def __call__(self, encoder: nn.Module) -> dict[str, float]:
        with frozen(encoder), seldom():
            pieces = [[encode(encoder, view, self.precision) for view in pair] for pair in self.pairs()]
            one, other = (torch.cat(side) for side in zip(*pieces, strict=True))
            found = {"alignment": alignment(one, other), "effective_rank": _rank(one), "spread": spread(one)}
        return {name: float(value) for name, value in found.items()}


class CollapseAlarm:
    """Told what the monitors saw: warns once, or stops the run, when features are collapsed twice in a row. Once is
    enough for a warning at the end of the run: a short one may be measured only there."""

    def __init__(
        self, epochs: int, stop: bool, seen: Sequence[Mapping[str, float]] = (), idle: Collection[str] = ()
    ) -> None:
        """`seen`: what the monitors of a run that goes on saw before; `idle`: options that would not help it."""
        self.epochs, self.stop, self.told, self.last = epochs, stop, False, watched(seen, epochs)[-1:]
        self.helps = ", ".join(advice for name, advice in HELPS.items() if name not in idle)

    def __call__(self, epoch: int, seen: Mapping[str, float]) -> None:
        now = watched([{**seen, "epoch": epoch}], self.epochs)
        if not now:
            return
        two, self.last, self.told = [*self.last, *now], now, self.told and is_collapsed(seen)
        if self.told or not stays_collapsed(two, self.epochs):
            return
        self.told = True
        message = f"the features have collapsed by epoch {epoch}: {in_words(seen)}. What usually helps: {self.helps}"
        if self.stop and _twice(two):
            raise Collapsed(message)
        tell(message.replace("`", ""))
