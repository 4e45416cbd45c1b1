"""Our table `photographs`: which method learns most from ten thousand photographs, each with the same effort."""

from typing import Any

from hypersphere.config import recipe
from hypersphere.paper.cells import Cell, Row, Table

EPOCHS = 50
MUON_RATES = (0.001, 0.004)
METHODS = (
    *("byol", "byol-uni", "byol-mhe", "simclr", "simclr-uni", "moco", "swav", "dino", "deepcluster"),
    *("barlow", "vicreg", "simsiam"),
)
SETTING = {"encoder": "torchvision/resnet18", "size": 128, "holdout": "validation", "epochs": EPOCHS}


def _usual(method: str) -> Row:
    return _trial(f"photographs-{method}", method, lr=round(recipe(method, "imagenette-160").lr, 6))


def _muon(method: str, lr: float) -> Row:
    return _trial(f"photographs-{method}-muon{lr:g}", method, optimizer="muon", lr=lr, weight_decay=0.01)


def _trial(name: str, method: str, **options: Any) -> Row:
    cell = Cell(name, method, "imagenette-160", {**SETTING, **options}, probes=("linear-cached", "knn"))
    return Row((method, cell.config(0).optimizer, f"{options['lr']:g}"), cell, {})


PHOTOGRAPHS = Table(
    "photographs",
    f"Imagenette at 160 pixels, ResNet-18 at 128 pixels, {EPOCHS} epochs: learned from a part of its training images, "
    "measured on the rest. Each method has the options of its recipe, and Muon at two learning rates",
    ("method", "optimizer", "learning rate"),
    (*map(_usual, METHODS), *(_muon(method, lr) for lr in reversed(MUON_RATES) for method in METHODS)),
    measures=("k-NN", "linear-cached", "uniformity"),
)
