"""Our table `cifar100`: tab:sections on CIFAR-100, so that no verdict rests on one dataset."""

import dataclasses

from hypersphere.paper.cells import Cell, Row, Table
from hypersphere.paper.tables import TABLES


def on_cifar100(cell: Cell) -> Cell:
    """The same cell on CIFAR-100."""
    return dataclasses.replace(cell, name=f"cifar100-{cell.name}", data="cifar100")


CIFAR100 = Table(
    "cifar100",
    "CIFAR-100, ResNet-18, 300 epochs (ours): which networks MHE regularizes",
    TABLES["tab:sections"].header,
    tuple(Row(row.labels, on_cifar100(row.cell), {}) for row in TABLES["tab:sections"].rows if row.cell is not None),
    measures=("top-1", "k-NN", "uniformity"),
)
