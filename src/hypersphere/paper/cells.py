"""What a table's cell means: the config of its runs, and what was published."""

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
    "uniformity": ("sphere", "uniformity"),
}


@dataclass(frozen=True)
class Cell:
    """`name` tells a cell from all others; cells of several tables that are the same runs are one."""

    name: str
    method: str
    data: str = "cifar10"
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    trained: bool = True  # False: the encoder as it is initialized
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


# What was tuned on validation images (tuning.py), for ResNet-18 on CIFAR-10 and all its variants alike. Frozen twice:
# a first choice, without `lr` and `tau_end`, met the test set once (BYOL, seed 0: linear 90.13).
TUNED: dict[str, Any] = {"crop_min": 0.2, "batch": 256, "lr": 4.5, "tau_end": 0.99}


class Protocol(NamedTuple):
    """How cells are run: with the paper's hyperparameters or tuned ones, for the published length or another."""

    epochs: int | None = None
    tuned: bool = False

    def config(self, cell: Cell, seed: int) -> Config:
        changes = {} if self.epochs is None else {"epochs": self.epochs}
        plain = cell.config(seed, **changes)
        small = (plain.data, plain.encoder) == ("cifar10", "torchvision/resnet18")
        if not self.tuned or not small:
            return plain
        about_batches = bool({"batch", "micro_batch"} & cell.options.keys())
        return plain.replace(**{name: value for name, value in TUNED.items() if name != "batch" or not about_batches})

    def changes(self, cell: Cell) -> bool:
        """Whether it is another config than as written: not all cells are tuned."""
        return self.config(cell, 0) != cell.config(0)

    def __str__(self) -> str:
        return ("tuned" if self.tuned else "as written") + ("" if self.epochs is None else f", {self.epochs} epochs")


AS_WRITTEN = Protocol()


class Row(NamedTuple):
    labels: tuple[str, ...]
    cell: Cell | None  # None: a figure of others, quoted by the paper
    published: dict[str, float]


@dataclass(frozen=True)
class Table:
    name: str
    caption: str
    header: tuple[str, ...]  # of the labels
    rows: tuple[Row, ...]
    measures: tuple[str, ...] = ()  # beyond those published

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.measures or tuple(dict.fromkeys(metric for row in self.rows for metric in row.published))

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(dict.fromkeys(row.cell for row in self.rows if row.cell is not None))
