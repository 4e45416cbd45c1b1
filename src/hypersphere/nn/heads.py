"""Projector and predictor."""

from itertools import pairwise

from torch import nn

from hypersphere.nn.norm import Norm, NormAct, norm_layer


def mlp(inputs: int, hidden: int, outputs: int, norm: Norm = "batch") -> nn.Sequential:
    """Two linear layers, the first followed by normalization and ReLU, as BYOL's g and q."""
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        NormAct(norm_layer(norm, hidden, spatial=False)),
        nn.Linear(hidden, outputs, bias=False),
    )


def deep_mlp(inputs: int, hidden: int, outputs: int, layers: int, norm: Norm = "batch") -> nn.Sequential:
    """So many linear layers, without biases, each but the last followed by normalization and ReLU."""
    widths = [inputs, *[hidden] * (layers - 1)]
    rest = [
        module
        for one, next_one in pairwise(widths)
        for module in (nn.Linear(one, next_one, bias=False), NormAct(norm_layer(norm, next_one, spatial=False)))
    ]
    return nn.Sequential(*rest, nn.Linear(widths[-1], outputs, bias=False))
