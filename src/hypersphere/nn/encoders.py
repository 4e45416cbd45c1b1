"""Encoders by name, as their libraries name them. Each maps B × C × H × W images to B × `num_features`."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from hypersphere.errors import UserError
from hypersphere.nn.norm import Norm, norm2d, norm_layer, standardize_weights

Stem = Literal["imagenet", "cifar"]


def build_encoder(
    name: str, *, channels: int = 3, stem: Stem = "imagenet", norm: Norm = "batch", dimensions: int | None = None
) -> nn.Module:
    """`stem="cifar"` keeps small images at full size (3 × 3, stride 1, no pooling); `dimensions` adds a linear layer
    to that many outputs (2 for the pictures on the circle)."""
    if name not in ENCODERS:
        raise UserError(f"unknown encoder {name!r}: choose one of {', '.join(ENCODERS)}")
    encoder = ENCODERS[name](channels, stem, norm)
    if norm == "group":
        standardize_weights(encoder)
    if dimensions is not None:
        encoder.fc = nn.Linear(features_of(encoder), dimensions)
        encoder.num_features = dimensions  # type: ignore[assignment]
    return encoder


def features_of(encoder: nn.Module) -> int:
    return encoder.num_features  # type: ignore[return-value]


def _resnet(name: str) -> Callable[[int, Stem, Norm], nn.Module]:
    def build(channels: int, stem: Stem, norm: Norm) -> nn.Module:
        from torchvision.models import get_model

        model = get_model(name, weights=None, norm_layer=norm2d(norm))
        if stem == "cifar":
            model.conv1 = nn.Conv2d(channels, 64, kernel_size=3, stride=1, padding=1, bias=False)
            model.maxpool = nn.Identity()
        elif channels != 3:
            model.conv1 = nn.Conv2d(channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
        model.num_features = model.fc.in_features
        model.fc = nn.Identity()
        return model

    return build


class ConvNet(nn.Module):
    """3 × 3 convolutions, each normalized and rectified, some followed by 2 × 2 max-pooling; then `head`."""

    def __init__(self, channels: int, widths: list[tuple[int, bool]], head: nn.Module, features: int, norm: Norm):
        super().__init__()
        layers: list[nn.Module] = []
        for width, pool in widths:
            conv = nn.Conv2d(channels, width, kernel_size=3, padding=1, bias=norm == "none")
            layers += [conv, norm_layer(norm, width, spatial=True), nn.ReLU(inplace=True)]
            layers += [nn.MaxPool2d(2)] * pool
            channels = width
        self.features, self.head, self.fc, self.num_features = nn.Sequential(*layers), head, nn.Identity(), features

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.head(self.features(images)))


def _alexnet(channels: int, stem: Stem, norm: Norm) -> nn.Module:
    """The AlexNet of fig:uni, for 32 × 32 images."""
    widths = [(96, True), (192, True), (384, False), (384, False), (192, True)]
    head: list[nn.Module] = [nn.Flatten()]
    for inputs in (192 * 4 * 4, 4096):
        head += [nn.Linear(inputs, 4096), norm_layer(norm, 4096, spatial=False), nn.ReLU(inplace=True)]
    return ConvNet(channels, widths, nn.Sequential(*head), 4096, norm)


def _digits(channels: int, stem: Stem, norm: Norm) -> nn.Module:
    """A small encoder for 8 × 8 digits: half a million weights, milliseconds on a CPU."""
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return ConvNet(channels, [(32, False), (64, True), (128, False), (256, False)], pool, 256, norm)


ENCODERS: dict[str, Callable[[int, Stem, Norm], nn.Module]] = {
    "torchvision/resnet18": _resnet("resnet18"),
    "torchvision/resnet50": _resnet("resnet50"),
    "hypersphere/alexnet": _alexnet,
    "hypersphere/digits": _digits,
}
