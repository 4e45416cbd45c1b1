"""Encoders by name, as their libraries name them. Each maps B × C × H × W images to B × `num_features`."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from hypersphere.errors import UserError
from hypersphere.nn.norm import Norm, NormAct, norm2d, norm_layer, standardize_weights

Stem = Literal["imagenet", "cifar"]


def build_encoder(
    name: str, *, channels: int = 3, stem: Stem = "imagenet", norm: Norm = "batch", dimensions: int | None = None
) -> nn.Module:
    """`stem="cifar"` keeps small images at full size (3 × 3, stride 1, no pooling); `dimensions` adds a linear layer
    to that many outputs (2 for the pictures on the circle). Other models of torchvision and timm are as they come."""
    encoder = ENCODERS[name](channels, stem, norm) if name in ENCODERS else _other(name, channels, norm)
    if norm == "group":
        standardize_weights(encoder)
    if dimensions is not None:
        if name not in ENCODERS:
            raise UserError(f"`dimensions` {dimensions} is not for {name}: there are {', '.join(ENCODERS)}")
        encoder.fc = nn.Linear(features_of(encoder), dimensions)
        encoder.num_features = dimensions  # type: ignore[assignment]
    return encoder


def _other(name: str, channels: int, norm: Norm) -> nn.Module:
    if not name.startswith(("torchvision/", "timm/")):
        raise UserError(f"unknown encoder {name!r}: there are {', '.join(ENCODERS)}, and torchvision/… and timm/…")
    if norm != "batch":
        raise UserError(f"`norm` {norm} is not for {name}, whose normalization is its own")
    from hypersphere.nn.zoo import build_model

    return build_model(name, channels)


def features_of(encoder: nn.Module) -> int:
    return encoder.num_features  # type: ignore[return-value]


def _resnet(name: str) -> Callable[[int, Stem, Norm], nn.Module]:
    def build(channels: int, stem: Stem, norm: Norm) -> nn.Module:
        from hypersphere.nn.resnet import build_resnet  # torchvision is needed here alone

        model = build_resnet(name, norm2d(norm))
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
    """`features` of the image, made a vector by `head`; then, where outputs are chosen, the linear layer `fc`."""

    def __init__(self, features: list[nn.Module], head: list[nn.Module], num_features: int) -> None:
        super().__init__()
        self.features, self.head, self.fc = nn.Sequential(*features), nn.Sequential(*head), nn.Identity()
        self.num_features = num_features

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.head(self.features(images)))


def _convolution(inputs: int, outputs: int, norm: Norm) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=norm == "none")
    return [conv, NormAct(norm_layer(norm, outputs, spatial=True))]


def _alexnet(channels: int, stem: Stem, norm: Norm) -> nn.Module:
    """The AlexNet of fig:uni, for 32 × 32 images."""
    features, inputs = [], channels
    for outputs, pool in ((96, True), (192, True), (384, False), (384, False), (192, True)):
        features += _convolution(inputs, outputs, norm) + [nn.MaxPool2d(2)] * pool
        inputs = outputs
    head: list[nn.Module] = [nn.Flatten()]
    for inputs in (192 * 4 * 4, 4096):
        head += [nn.Linear(inputs, 4096), NormAct(norm_layer(norm, 4096, spatial=False))]
    return ConvNet(features, head, 4096)


def _digits(channels: int, stem: Stem, norm: Norm) -> nn.Module:
    """A small residual encoder for 8 × 8 digits: 300,000 weights, milliseconds on a CPU."""
    from hypersphere.nn.resnet import BasicBlock

    features = _convolution(channels, 32, norm)
    for inputs, outputs in ((32, 64), (64, 128)):
        shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, kernel_size=1, bias=False), norm2d(norm)(outputs))
        features += [nn.MaxPool2d(2), BasicBlock(inputs, outputs, downsample=shortcut, norm_layer=norm2d(norm))]
    return ConvNet(features, [nn.AdaptiveAvgPool2d(1), nn.Flatten()], 128)


ENCODERS: dict[str, Callable[[int, Stem, Norm], nn.Module]] = {
    "torchvision/resnet18": _resnet("resnet18"),
    "torchvision/resnet50": _resnet("resnet50"),
    "hypersphere/alexnet": _alexnet,
    "hypersphere/digits": _digits,
}
