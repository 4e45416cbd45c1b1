"""Our table `methods`: do the regularizers help methods other than BYOL? Short runs of all methods."""

from hypersphere.methods import METHODS
from hypersphere.paper.cells import Cell, Row, Table

REGULARIZERS = {"": "–", "-mhe": "MHE", "-uni": "Uni"}
# k-NN accuracy in lightly's benchmark: 200 epochs, batch 512
LIGHTLY = {
    "byol": "86.8",
    "simclr": "84.8",
    "moco": "84.7",
    "swav": "84.2",
    "barlow": "81.9",
    "dino": "81.3",
    "simsiam": "76.4",
}


def _row(method: str, variant: str) -> Row:
    options = {"holdout": "validation", "epochs": 50, "batch": 512}
    cell = Cell(f"methods-{method}{variant}", method + variant, options=options, probes=("linear-cached", "knn"))
    return Row((method, REGULARIZERS[variant], "" if variant else LIGHTLY.get(method, "")), cell, {})


COMPARISON = Table(
    "methods",
    "Every method, CIFAR-10, ResNet-18, batch 512: learned from 45,000 training images in 50 epochs, measured on the "
    "other 5,000. Beside it lightly's k-NN accuracy after 200 epochs, to compare the order with",
    ("method", "regularizer", "k-NN, lightly, 200 epochs"),
    tuple(_row(method, variant) for variant in REGULARIZERS for method in METHODS if method != "distill"),
    measures=("k-NN", "linear-cached", "uniformity"),
)
