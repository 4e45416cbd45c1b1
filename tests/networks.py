"""An encoder that learns in no time, and small heads, for tests of what is done with them."""

from typing import Any

from torch import nn

from hypersphere.config import option_names
from hypersphere.nn import ENCODERS
from hypersphere.nn.encoders import ConvNet


def small(channels: int, stem: str, norm: str) -> nn.Module:
    """Two blocks: features of a quarter of the image each."""
    blocks: list[nn.Module] = [
        nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())
        for inputs, outputs in ((channels, 6), (6, 8))
    ]
    return ConvNet(blocks, [nn.AdaptiveAvgPool2d(2), nn.Flatten()], num_features=32, input_size=8)


SMALL_ENCODER = "tests/small"
ENCODERS[SMALL_ENCODER] = small


def those_of(method: str, **options: Any) -> dict[str, Any]:
    """The options that a method has: not all have heads."""
    return {name: value for name, value in options.items() if name in option_names(method)}
