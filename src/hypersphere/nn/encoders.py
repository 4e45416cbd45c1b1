"""Encoders by name. Each maps images B × C × H × W to features B × `num_features`."""

import contextlib
import inspect
import numbers
import warnings
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from hypersphere.errors import UserError, closest_name, first_line
from hypersphere.nn.in_memory import copy_of, given, is_in_memory
from hypersphere.nn.norm import Norm, NormAct, norm2d, norm_layer, standardize_weights
from hypersphere.util.references import import_reference, is_reference

Stem = Literal["imagenet", "cifar"]


def build_encoder(
    name: str,
    *,
    channels: int = 3,
    stem: Stem = "imagenet",
    norm: Norm = "batch",
    dimensions: int | None = None,
    size: int | None = None,
) -> nn.Module:
    """Build an encoder by name: a network from images to features.

    Args:
        name: One of `ENCODERS`, any model as `torchvision/NAME` or `timm/NAME`, or your own function as
            `package.module:function`.
        channels: Channels of the images.
        stem: "imagenet" (7 × 7, stride 2, pooling) or "cifar" (3 × 3, stride 1, no pooling) for the ResNets in
            `ENCODERS`; others ignore it.
        norm: Normalization of the encoders in `ENCODERS`: "batch", "group" (GroupNorm and standardized weights) or
            "none".
        dimensions: If given, a linear layer to this many outputs is added. For the encoders in `ENCODERS` only.
        size: Side of the images in pixels. Vision transformers are built for it; most of them then accept other sizes,
            too. Default: the size for which the library made the model.

    Returns:
        A module that maps (B, channels, H, W) to (B, num_features), with an attribute `num_features`.

    Raises:
        UserError: If there is no such encoder, or it does not have an option.

    Example:
        >>> encoder = hs.nn.build_encoder("hypersphere/digits", channels=1)
        >>> encoder(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 128])
    """
    encoder = ENCODERS[name](channels, stem, norm) if name in ENCODERS else _other(name, channels, norm, size)
    if norm == "group":
        standardize_weights(encoder)
    if dimensions is not None:
        if name not in ENCODERS:
            raise UserError(f"`dimensions` applies to {', '.join(ENCODERS)}, not to {name}: leave it out")
        encoder.fc = nn.Linear(features_of(encoder), dimensions)
        encoder.num_features = dimensions  # type: ignore[assignment]
    return encoder


def check_encoder(name: str) -> None:
    """Check that an encoder of this name exists, without building it.

    Args:
        name: A name for `build_encoder`.

    Raises:
        UserError: If there is no such encoder; the message suggests similar names.

    Example:
        >>> hs.nn.check_encoder("torchvision/resnet19")
        Traceback (most recent call last):
        ...
        hypersphere.errors.UserError: torchvision has no model 'resnet19': did you mean 'resnet18'?
    """
    if name in ENCODERS or is_in_memory(name):
        return
    from hypersphere.nn.libraries import check_model, torchvision_names

    if is_reference(name):
        import_reference(name)
    elif name.startswith(("torchvision/", "timm/")):
        check_model(name)
    else:
        models = {ours.rpartition("/")[2]: ours for ours in ENCODERS}
        models |= {theirs: f"torchvision/{theirs}" for theirs in torchvision_names()}
        close = closest_name(name.rpartition("/")[2], models)
        meant = f": did you mean {models[close]!r}?" if close else ""
        known = f"{', '.join(ENCODERS)}, torchvision/…, timm/…, or your own as package.module:function"
        raise UserError(f"unknown encoder {name!r}{meant} (there are {known})")


def _other(name: str, channels: int, norm: Norm, size: int | None) -> nn.Module:
    if norm != "batch":
        check_encoder(name)
        raise UserError(f"`norm` must be batch for {name}, which has its own normalization, got {norm}")
    encoder = _unmeasured(name, channels, size)
    if is_reference(name) or is_in_memory(name):
        return _with_width(encoder, name, channels, size)
    with contextlib.suppress(UserError):  # `try_encoder` of a run reports it
        encoder.num_features = width_of_output(encoder, name, channels, size or encoder.input_size)  # type: ignore
    return encoder


def _unmeasured(name: str, channels: int, size: int | None) -> nn.Module:
    check_encoder(name)
    if is_in_memory(name):
        return copy_of(name)
    if is_reference(name):
        return _written(name, channels)
    from hypersphere.nn.libraries import build_model

    return build_model(name, channels, size=size)


def _written(name: str, channels: int) -> nn.Module:
    """Call the user's function, with the number of channels if it has that parameter."""
    make = import_reference(name)
    if not callable(make) or isinstance(make, nn.Module):
        raise UserError(
            f"`encoder` {name} must be a function or class that returns a network, got {type(make).__name__}"
        )
    encoder = make(channels=channels) if takes_channels(make) else make()
    if not isinstance(encoder, nn.Module):
        raise UserError(f"`encoder` {name} must return a torch.nn.Module, got {type(encoder).__name__}")
    return encoder


def _with_width(encoder: nn.Module, name: str, channels: int, size: int | None) -> nn.Module:
    """The user's network with `num_features`: as it is, or measured."""
    if isinstance(getattr(encoder, "num_features", None), numbers.Integral):
        return encoder
    if size is None:
        raise UserError(f"`encoder` {name} has no num_features: set it to the number of outputs, or pass `size`")
    encoder.num_features = width_of_output(encoder, name, channels, size)  # type: ignore[assignment]
    return encoder


def width_of_output(encoder: nn.Module, name: str, channels: int, size: int) -> int:
    """Number of features that an encoder returns for an image: libraries have no attribute that always says it.

    Raises:
        UserError: If it does not accept the image, or does not return one vector.
    """
    training = {module: module.training for module in encoder.modules()}
    like = next((w for w in encoder.parameters() if w.is_floating_point() and not is_lazy(w)), torch.zeros(()))
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            found = encoder.eval()(like.new_zeros(1, channels, size, size))
    except (RuntimeError, ValueError, AssertionError, AttributeError, TypeError, IndexError) as error:
        shape = f"{channels} × {size} × {size}"
        raise UserError(f"`encoder` {name} does not accept {shape} images ({first_line(error)})") from None
    finally:
        for module, mode in training.items():
            module.training = mode
    if not isinstance(found, Tensor) or found.ndim != 2:
        returned = f"the shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise UserError(f"`encoder` {name} must return features of shape (images, width), got {returned}")
    return found.shape[1]


def takes_channels(make: Callable[..., nn.Module]) -> bool:
    return "channels" in inspect.signature(make).parameters


def sketch(name: str) -> nn.Module | None:
    """The encoder of this name without memory for its weights, to see of which kind it is; None if it has no kind.

    Encoders of this package, and those that cannot be built, have none.
    """
    if name in ENCODERS:
        return None
    if is_in_memory(name):
        return given(name)
    for device in ("meta", "cpu"):  # not all code of others runs on the first
        quietly = warnings.catch_warnings(action="ignore")
        with contextlib.suppress(Exception), quietly, torch.random.fork_rng(devices=[]), torch.device(device):
            return _unmeasured(name, channels=3, size=None)
    return None


def has_stem(name: str) -> bool:
    """Whether `stem` applies to the encoder of this name."""
    return getattr(ENCODERS.get(name), "func", None) is _resnet


def takes_any_channels(name: str) -> bool:
    """Whether the encoder of a name can be built for any number of channels; others take images in colour."""
    if is_reference(name):
        make = import_reference(name)
        return callable(make) and takes_channels(make)
    return name in ENCODERS or name.startswith("timm/")


def features_of(encoder: nn.Module) -> int:
    """Number of features that an encoder returns.

    Args:
        encoder: A network with an attribute `num_features`.

    Returns:
        Its `num_features` as an int.

    Raises:
        AttributeError: If the network has no `num_features`.

    Example:
        >>> hs.nn.features_of(hs.nn.build_encoder("torchvision/resnet18"))
        512
    """
    return int(encoder.num_features)  # type: ignore[arg-type]


def _resnet(name: str, channels: int, stem: Stem, norm: Norm) -> nn.Module:
    from hypersphere.nn.resnet import build_resnet  # imports torchvision, which nothing else here needs

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


class ConvNet(nn.Module):
    """`features` of the image, `head` to a vector, and `fc`: a linear layer if `dimensions` are chosen."""

    def __init__(self, features: list[nn.Module], head: list[nn.Module], num_features: int, input_size: int) -> None:
        super().__init__()
        self.features, self.head, self.fc = nn.Sequential(*features), nn.Sequential(*head), nn.Identity()
        self.num_features, self.input_size = num_features, input_size

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
    return ConvNet(features, head, 4096, 32)


def _digits(channels: int, stem: Stem, norm: Norm) -> nn.Module:
    """A small residual encoder for 8 × 8 digits, with 300,000 weights."""
    from hypersphere.nn.resnet import BasicBlock

    features = _convolution(channels, 32, norm)
    for inputs, outputs in ((32, 64), (64, 128)):
        shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, kernel_size=1, bias=False), norm2d(norm)(outputs))
        features += [nn.MaxPool2d(2), BasicBlock(inputs, outputs, downsample=shortcut, norm_layer=norm2d(norm))]
    return ConvNet(features, [nn.AdaptiveAvgPool2d(1), nn.Flatten()], 128, 8)


# encoders of this package, or changed by it: (channels, stem, norm) → encoder
ENCODERS: dict[str, Callable[[int, Stem, Norm], nn.Module]] = {
    "torchvision/resnet18": partial(_resnet, "resnet18"),
    "torchvision/resnet50": partial(_resnet, "resnet50"),
    "hypersphere/alexnet": _alexnet,
    "hypersphere/digits": _digits,
}
