"""Our table `rates`: every method at three learning rates, since recipes for 1000 epochs learn little in 50."""

from hypersphere.config import recipe
from hypersphere.methods import METHODS
from hypersphere.paper.cells import Cell, Row, Table

EPOCHS = 50
FACTORS = (1, 3, 9)  # of the recipe's learning rate
WITHOUT = {"supervised", "distill"}  # methods that need labels, or a teacher
SETTING = {"holdout": "validation", "epochs": EPOCHS, "batch": 256}


def _row(method: str, factor: int) -> Row:
    lr = round(factor * recipe(method).lr, 6)
    cell = Cell(f"rates-{method}-x{factor}", method, options={**SETTING, "lr": lr}, probes=("linear-cached", "knn"))
    return Row((method, f"{lr:g}"), cell, {})


RATES = Table(
    "rates",
    f"Every method at three learning rates, CIFAR-10, ResNet-18, batch 256: learned from 45,000 training images in "
    f"{EPOCHS} epochs, measured on the other 5,000",
    ("method", "learning rate"),
    tuple(_row(method, factor) for factor in FACTORS for method in METHODS if method not in WITHOUT),
    measures=("k-NN", "linear-cached", "uniformity"),
)
