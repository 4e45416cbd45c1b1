"""MLP heads: projector and predictor."""

from itertools import pairwise

from torch import nn

from hypersphere.nn.norm import Norm, NormAct, norm_layer


def mlp(inputs: int, hidden: int, outputs: int, norm: Norm = "batch") -> nn.Sequential:
    """Two linear layers, the first followed by normalization and ReLU: BYOL's projector and predictor.

    Args:
        inputs: Input features.
        hidden: Features of the hidden layer.
        outputs: Output features. The last layer has no bias.
        norm: Normalization of the hidden layer: "batch", "group" or "none".

    Returns:
        A module that maps (B, inputs) to (B, outputs).

    Raises:
        ValueError: If `norm` is unknown.

    Example:
        >>> hs.nn.mlp(512, 4096, 256)(torch.zeros(2, 512)).shape
        torch.Size([2, 256])
    """
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        NormAct(norm_layer(norm, hidden, spatial=False)),
        nn.Linear(hidden, outputs, bias=False),
    )


def deep_mlp(inputs: int, hidden: int, outputs: int, layers: int, norm: Norm = "batch") -> nn.Sequential:
    """Linear layers without biases; each but the last is followed by normalization and ReLU.

    Args:
        inputs: Input features.
        hidden: Features of the hidden layers.
        outputs: Output features.
        layers: Number of linear layers.
        norm: Normalization of the hidden layers: "batch", "group" or "none".

    Returns:
        A module that maps (B, inputs) to (B, outputs).

    Raises:
        ValueError: If `norm` is unknown.

    Example:
        >>> head = hs.nn.deep_mlp(512, 2048, 128, layers=3)
        >>> sum(isinstance(module, torch.nn.Linear) for module in head)
        3
    """
    widths = [inputs, *[hidden] * (layers - 1)]
    rest = [
        module
        for one, next_one in pairwise(widths)
        for module in (nn.Linear(one, next_one, bias=False), NormAct(norm_layer(norm, next_one, spatial=False)))
    ]
    return nn.Sequential(*rest, nn.Linear(widths[-1], outputs, bias=False))
