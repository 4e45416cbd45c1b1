"""Our table `rates`: every method with faster learning, since recipes for 1000 epochs learn little in 50."""

from typing import Any

from hypersphere.config import recipe
from hypersphere.methods import METHODS
from hypersphere.paper.cells import Cell, Row, Table

EPOCHS = 50
FACTORS = (1, 3)  # of the recipe's learning rate
MUON_RATE = 0.004
WITHOUT = {"supervised", "distill"}  # methods that need labels, or a teacher
SETTING = {"holdout": "validation", "epochs": EPOCHS, "batch": 256}


def _times(method: str, factor: int) -> Row:
    return _row(f"rates-{method}-x{factor}", method, lr=round(factor * recipe(method).lr, 6))


def _muon(method: str) -> Row:
    return _row(f"rates-{method}-muon{MUON_RATE:g}", method, optimizer="muon", lr=MUON_RATE, weight_decay=0.01)


def _row(name: str, method: str, **options: Any) -> Row:
    cell = Cell(name, method, options={**SETTING, **options}, probes=("linear-cached", "knn"))
    return Row((method, cell.config(0).optimizer, f"{options['lr']:g}"), cell, {})


LEARNERS = tuple(method for method in METHODS if method not in WITHOUT)
RATES = Table(
    "rates",
    "Every method with its own learning rate, three times that, and Muon; CIFAR-10, ResNet-18, batch 256: learned from "
    f"45,000 training images in {EPOCHS} epochs, measured on the other 5,000",
    ("method", "optimizer", "learning rate"),
    (*(_times(method, factor) for factor in FACTORS for method in LEARNERS), *map(_muon, LEARNERS)),
    measures=("k-NN", "linear-cached", "uniformity"),
)
