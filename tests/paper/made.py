"""Small cells of digits, and results made up."""

import dataclasses

from hypersphere.paper.cells import Cell
from hypersphere.runs.results import Result
from hypersphere.sweeps import FanOut
from tests.networks import SMALL_ENCODER

SMALL = {
    "encoder": SMALL_ENCODER,
    "hidden": 32,
    "projection": 8,
    "batch": 256,
    "epochs": 2,
    "knn_every": 0,
    "device": "cpu",
}

PLAIN, SPREAD = (Cell(f"mini-{method}", method, "digits", SMALL) for method in ("byol", "byol-uni"))

HERE = FanOut(workers=0)  # in this process


def result(cell, seed, top1, epochs=300, **changes):
    config = cell.config(seed, epochs=epochs)
    found = {"linear": {"top1": top1}, "sphere": {"uniformity": -top1 / 100}}
    return dataclasses.replace(Result(cell.name, config, config.hash, found, 1.0, {}), **changes)
