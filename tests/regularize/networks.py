"""What is regularized in the tests."""

from torch import nn


def network():
    return nn.ModuleDict(
        {
            "encoder": nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3, groups=2)),
            "projector": nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.Linear(10, 4)),
            "predictor": nn.Linear(4, 5),
        }
    )
