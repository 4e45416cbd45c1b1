"""An encoder that learns in no time, for tests of what is done with encoders."""

from torch import nn

from hypersphere.nn import ENCODERS


def tiny(channels: int, stem: str, norm: str) -> nn.Module:
    """Two blocks, with torch's own BatchNorm as encoders of other libraries have it."""
    blocks = [
        nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())
        for inputs, outputs in ((channels, 6), (6, 8))
    ]
    encoder = nn.Sequential(*blocks, nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten()))
    encoder.num_features = 32  # type: ignore[assignment]
    return encoder


TINY = "tests/tiny"
ENCODERS[TINY] = tiny
