"""Projector and predictor."""

from torch import nn

from hypersphere.nn.norm import Norm, NormAct, norm_layer


def mlp(inputs: int, hidden: int, outputs: int, norm: Norm = "batch") -> nn.Sequential:
    """Two linear layers, the first followed by normalization and ReLU, as BYOL's g and q."""
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        NormAct(norm_layer(norm, hidden, spatial=False)),
        nn.Linear(hidden, outputs, bias=False),
    )
