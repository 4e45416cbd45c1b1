"""Our table `tuning`: options that we tried in short runs, on images held out of the training set."""

from collections.abc import Iterator
from typing import Any

from hypersphere.paper.cells import TUNED, Cell, Row, Table
from hypersphere.paper.tables import BYOL, PREDICTOR_A2, UNI


def _trial(name: str, epochs: int, of: Cell = BYOL, **options: Any) -> Row:
    options_of_run = {**of.options, "holdout": "validation", "epochs": epochs, **options}
    cell = Cell(f"trial-{name}", of.method, options=options_of_run, probes=("linear-cached", "knn"))
    changed = ", ".join(f"{option} {value}" for option, value in options.items()) or "as written"
    return Row((of.name, changed, str(epochs)), cell, {})


def _around(of: Cell, weight: str, *others: float) -> Iterator[Row]:
    """Trials of a variant: the options chosen for BYOL, two other learning rates, and other weights."""
    yield _trial(f"{of.name}-tuned", 50, of, **TUNED)
    yield _trial(f"{of.name}-lr15", 50, of, **{**TUNED, "lr": 1.5})
    yield _trial(f"{of.name}-lr9", 50, of, **{**TUNED, "lr": 9.0})
    for value in others:
        yield _trial(f"{of.name}-{weight}{value:g}", 50, of, **TUNED, **{weight: value})


TRIALS = Table(
    "tuning",
    "CIFAR-10, ResNet-18: learned from 45,000 training images, measured on the other 5,000",
    ("method", "recipe", "epochs"),
    (
        _trial("written", 50),
        _trial("crop", 50, crop_min=0.2),
        _trial("crop-lr3", 50, crop_min=0.2, lr=3.0),
        _trial("crop-batch512", 50, crop_min=0.2, batch=512),
        _trial("crop-sgd", 50, crop_min=0.2, optimizer="sgd", lr=0.12, weight_decay=5e-4),
        _trial("crop-tau98", 50, crop_min=0.2, tau=0.98),
        _trial("crop-batch512-tau98", 50, crop_min=0.2, batch=512, tau=0.98),
        _trial("crop-batch256", 50, crop_min=0.2, batch=256),
        _trial("crop-batch256-lr45", 50, crop_min=0.2, batch=256, lr=4.5),
        _trial("crop-batch256-tau99", 50, crop_min=0.2, batch=256, tau_end=0.99),
        _trial("crop-batch256-lr45-tau99", 50, crop_min=0.2, batch=256, lr=4.5, tau_end=0.99),
        _trial("crop-batch256-lr9-tau99", 50, crop_min=0.2, batch=256, lr=9.0, tau_end=0.99),
        _trial("crop-tau96", 50, crop_min=0.2, tau=0.96),
        _trial("crop-tau96-lr3", 50, crop_min=0.2, tau=0.96, lr=3.0),
        *_around(UNI, "uniformity", 0.03, 0.5),
        *_around(PREDICTOR_A2, "energy", 1.0, 100.0),
    ),
    measures=("linear-cached", "k-NN", "uniformity"),
)
