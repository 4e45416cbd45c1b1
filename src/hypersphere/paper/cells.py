"""What a table's cell means: the config of its runs, and what was published."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from hypersphere.config import Config, recipe
from hypersphere.errors import UserError

# metric of a table → probe and number of an evaluation
METRICS: dict[str, tuple[str, str]] = {
    "top-1": ("linear", "top1"),
    "top-5": ("linear", "top5"),
    "linear-cached": ("linear-cached", "top1"),
    "k-NN": ("knn", "top1"),
    "k-NN range": ("knn", "range"),
    "uniformity": ("sphere", "uniformity"),
    "effective rank": ("sphere", "effective_rank"),
}


@dataclass(frozen=True)
class Cell:
    """`name` tells a cell from all others; cells of several tables that are the same runs are one."""

    name: str
    method: str
    data: str = "cifar10"
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    trained: bool = True  # False: a random encoder
    probes: tuple[str, ...] = ()  # () has all

    def config(self, seed: int, **changes: Any) -> Config:
        """Of one run, on the whole training set and the test set unless `options` say otherwise; `changes` such as
        `epochs` make another protocol."""
        return _config(self, tuple({**changes, "seed": seed}.items()))

    @property
    def obstacle(self) -> str | None:
        """Why nobody can run it with this version, if so."""
        try:
            self.config(0)
        except UserError as error:
            return str(error).split(" (there are")[0].replace("`", "")
        return None


@cache  # a page asks for each many times
def _config(cell: Cell, changes: tuple[tuple[str, Any], ...]) -> Config:
    return recipe(cell.method, cell.data, **{"holdout": "test", **cell.options, **dict(changes)})


@cache
def _changed(config: Config, changes: tuple[tuple[str, Any], ...]) -> Config:
    return config.replace(**dict(changes))


# What was tuned for BYOL on validation images (tuning.py), ResNet-18 on CIFAR-10, and all variants have. Frozen twice:
# a first choice, without `lr` and `tau_end`, met the test set once (BYOL, seed 0: linear 90.13).
TUNED: dict[str, Any] = {"crop_min": 0.2, "batch": 256, "lr": 4.5, "tau_end": 0.99}


class Protocol(NamedTuple):
    """How cells are run: with the paper's hyperparameters or tuned ones, for the published length or another."""

    epochs: int | None = None
    tuned: bool = False

    def config(self, cell: Cell, seed: int) -> Config:
        changes = {} if self.epochs is None else {"epochs": self.epochs}
        plain = cell.config(seed, **changes)
        what = (plain.method, plain.data, plain.encoder, plain.holdout)
        tuned = what == ("byol", "cifar10", "torchvision/resnet18", "test")
        compares_batches = bool({"batch", "micro_batch"} & cell.options.keys())
        if not self.tuned or not tuned or compares_batches:
            return plain
        return _changed(plain, tuple(TUNED.items()))

    def changes(self, cell: Cell) -> bool:
        """Whether it is another config than without: not all cells are tuned."""
        return self.config(cell, 0) != Protocol(self.epochs if self.tuned else None).config(cell, 0)

    def fits(self, cells: Sequence[Cell]) -> bool:
        """Whether cells can be compared by it: all of them are tuned, or none."""
        return not self.tuned or all(cell.obstacle is not None or self.changes(cell) for cell in cells)

    def __str__(self) -> str:
        return ("tuned" if self.tuned else "as written") + ("" if self.epochs is None else f", {self.epochs} epochs")


AS_WRITTEN = Protocol()


class Row(NamedTuple):
    labels: tuple[str, ...]
    cell: Cell | None  # None: a figure of others, quoted by the paper
    published: dict[str, float]
    spread: float | None = None  # half of what lies between the best and the worst run, where the paper has it

    def told(self, metric: str) -> str:
        """What was published of it."""
        spread = "" if self.spread is None else f" ± {self.spread:.2f}"
        return f"{self.published[metric]:.2f}{spread}" if metric in self.published else ""


@dataclass(frozen=True)
class Table:
    name: str
    caption: str
    header: tuple[str, ...]  # of the labels
    rows: tuple[Row, ...]
    measures: tuple[str, ...] = ()  # shown instead of the published metrics alone
    protocol: Protocol = AS_WRITTEN  # by which its cells run unless another length is asked for

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.measures or tuple(dict.fromkeys(metric for row in self.rows for metric in row.published))

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(dict.fromkeys(row.cell for row in self.rows if row.cell is not None))
