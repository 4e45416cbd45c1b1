"""Cells, rows and tables: the configs of their runs, and the published numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from hypersphere.config import Config, recipe
from hypersphere.errors import UserError

# metric of a table → probe and name of the number in an evaluation
METRICS: dict[str, tuple[str, str]] = {
    "top-1": ("linear", "top1"),
    "top-5": ("linear", "top5"),
    "linear-cached": ("linear-cached", "top1"),
    "k-NN": ("knn", "top1"),
    "k-NN range": ("knn", "range"),
    "200-NN": ("knn", "top1_of_200"),
    "uniformity": ("sphere", "uniformity"),
    "effective rank": ("sphere", "effective_rank"),
}


@dataclass(frozen=True)
class Cell:
    """A set of runs that differ in their seed only. Tables that show the same runs share the cell.

    Attributes:
        name: Unique name.
        method: Method, such as "byol-mhe".
        data: Dataset.
        options: Options that differ from the method's recipe.
        trained: False for a random encoder.
        probes: Probes of the evaluation; empty for all.
    """

    name: str
    method: str
    data: str = "cifar10"
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    trained: bool = True
    probes: tuple[str, ...] = ()

    def config(self, seed: int, **changes: Any) -> Config:
        """Config of one run, with the whole training set and the test set unless `options` say otherwise.

        Args:
            seed: Seed of the run.
            **changes: Options of another protocol, such as `epochs`.
        """
        return _config(self, tuple({**changes, "seed": seed}.items()))

    @property
    def obstacle(self) -> str | None:
        """Why this version cannot run the cell; None if it can."""
        try:
            self.config(0)
        except UserError as error:
            return str(error).split(" (there are")[0].replace("`", "")
        return None


@cache  # writing a page asks for each config many times
def _config(cell: Cell, changes: tuple[tuple[str, Any], ...]) -> Config:
    return recipe(cell.method, cell.data, **{"holdout": "test", **cell.options, **dict(changes)})


@cache
def _changed(config: Config, changes: tuple[tuple[str, Any], ...]) -> Config:
    return config.replace(**dict(changes))


# Options tuned for BYOL on validation images (tuning.py), ResNet-18 on CIFAR-10; all variants use them. We froze them
# twice: a first choice, without `lr` and `tau_end`, was evaluated once on the test set (BYOL, seed 0: linear 90.13).
TUNED: dict[str, Any] = {"crop_min": 0.2, "batch": 256, "lr": 4.5, "tau_end": 0.99}


class Protocol(NamedTuple):
    """How cells are run.

    Attributes:
        epochs: Length of the runs; None for the published length.
        tuned: Whether to use the tuned options instead of the paper's.
    """

    epochs: int | None = None
    tuned: bool = False

    def config(self, cell: Cell, seed: int) -> Config:
        """Config of one run of a cell; cells that were not tuned keep the paper's options."""
        changes = {} if self.epochs is None else {"epochs": self.epochs}
        plain = cell.config(seed, **changes)
        setting = (plain.method, plain.data, plain.encoder, plain.holdout)
        is_tuned = setting == ("byol", "cifar10", "torchvision/resnet18", "test")
        compares_batches = bool({"batch", "micro_batch"} & cell.options.keys())
        if not self.tuned or not is_tuned or compares_batches:
            return plain
        return _changed(plain, tuple(TUNED.items()))

    def changes(self, cell: Cell) -> bool:
        """Whether it changes the config of a cell: not all cells are tuned."""
        return self.config(cell, 0) != Protocol(self.epochs if self.tuned else None).config(cell, 0)

    def fits(self, cells: Sequence[Cell]) -> bool:
        """Whether cells can be compared by this protocol: if it is tuned, all of them must be."""
        return not self.tuned or all(cell.obstacle is not None or self.changes(cell) for cell in cells)

    def __str__(self) -> str:
        return ("tuned" if self.tuned else "as written") + ("" if self.epochs is None else f", {self.epochs} epochs")


AS_WRITTEN = Protocol()


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        labels: Its first columns.
        cell: Its runs; None for a number that the paper quotes from others.
        published: Published numbers by metric.
        spread: Half of the range of the paper's runs, if the paper reports it.
    """

    labels: tuple[str, ...]
    cell: Cell | None
    published: dict[str, float]
    spread: float | None = None

    def published_text(self, metric: str) -> str:
        """The published number; empty if there is none."""
        spread = "" if self.spread is None else f" ± {self.spread:.2f}"
        return f"{self.published[metric]:.2f}{spread}" if metric in self.published else ""


@dataclass(frozen=True)
class Table:
    """A table of the paper, or one of ours.

    Attributes:
        name: Name on the command line: the paper's LaTeX label, or ours.
        caption: What it shows.
        header: Titles of the label columns.
        rows: Its rows.
        measures: Metrics to show instead of the published ones.
        protocol: Protocol of its cells, unless another length is asked for.
    """

    name: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    measures: tuple[str, ...] = ()
    protocol: Protocol = AS_WRITTEN

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that the table shows."""
        return self.measures or tuple(dict.fromkeys(metric for row in self.rows for metric in row.published))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Its cells, each once."""
        return tuple(dict.fromkeys(row.cell for row in self.rows if row.cell is not None))
