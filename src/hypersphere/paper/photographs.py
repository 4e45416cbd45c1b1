"""Our table `photographs`: which method learns most from ten thousand photographs, each with the same effort."""

from hypersphere.config import recipe
from hypersphere.paper.cells import Cell, Row, Table

EPOCHS = 50
RATES = (1, 2, 4)  # of the recipe's learning rate
METHODS = (
    *("byol", "byol-uni", "byol-mhe", "simclr", "simclr-uni", "moco", "swav", "dino", "deepcluster"),
    *("barlow", "vicreg", "simsiam"),
)
SETTING = {"encoder": "torchvision/resnet18", "size": 128, "holdout": "validation", "epochs": EPOCHS}


def _row(method: str, rate: int) -> Row:
    lr = round(rate * recipe(method, "imagenette-160").lr, 6)
    name = f"photographs-{method}" + f"-lr{rate}" * (rate > 1)
    cell = Cell(name, method, "imagenette-160", {**SETTING, "lr": lr}, probes=("linear-cached", "knn"))
    return Row((method, f"{lr:g}"), cell, {})


PHOTOGRAPHS = Table(
    "photographs",
    f"Imagenette at 160 pixels, ResNet-18 at 128 pixels, {EPOCHS} epochs: learned from a part of its training images, "
    "measured on the rest. Each method has three learning rates",
    ("method", "learning rate"),
    tuple(_row(method, rate) for rate in RATES for method in METHODS),
    measures=("k-NN", "linear-cached", "uniformity"),
)
