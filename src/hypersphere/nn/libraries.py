"""Models of torchvision and timm as encoders, without their classification layer."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from hypersphere.errors import UserError, did_you_mean, first_line
from hypersphere.nn.hub import offline_if_unreachable
from hypersphere.util.optional import require

_NO_AUXILIARY_HEADS = {"aux_logits": False, "init_weights": True}  # with them the output is a tuple
OPTIONS = {"googlenet": _NO_AUXILIARY_HEADS, "inception_v3": _NO_AUXILIARY_HEADS}

# options of timm, beside img_size, for models to accept other sizes than that, too: those of ViTs, of Swin, of others
FLEXIBLE: tuple[dict[str, bool], ...] = (
    {"dynamic_img_size": True, "dynamic_img_pad": True},
    {"strict_img_size": False},
    {},
)


def build_model(name: str, channels: int = 3, *, size: int | None = None) -> nn.Module:
    """Build `torchvision/NAME` or `timm/NAME`, without its classification layer.

    Args:
        name: Name of the model.
        channels: Channels of the images.
        size: Side of the images in pixels, for models that need it, such as vision transformers. None: their own.

    Returns:
        The model, with attributes `num_features`, `input_size` (pixels a side for which it was made) and `built_with`
        (options of the library that depend on the size).
    """
    check_model(name)
    library, _, model = name.partition("/")
    if library == "timm":
        sizes = [] if size is None else [{"img_size": size, **flexible} for flexible in FLEXIBLE]
        return _timm(model, channels, sizes)
    return _torchvision(model, channels, [] if size is None else [{"image_size": size}])


def pretrained_model(name: str, channels: int = 3, like: nn.Module | None = None) -> nn.Module:
    """Build `torchvision/NAME` or `timm/NAME` with the library's weights; for the input size of the model `like`."""
    check_model(name)
    library, _, model = name.partition("/")
    if library == "timm":
        return _timm(model, channels, [getattr(like, "built_with", {})], pretrained=True)
    return _torchvision(model, channels, [], pretrained=True)


def check_model(name: str) -> None:
    """Check that `torchvision/NAME` or `timm/NAME` exists, without building it."""
    library, _, model = name.partition("/")
    if library == "timm":
        timm = require("timm", name)
        names, known = timm.list_models(), timm.is_model(model.partition(".")[0])  # the weights' name follows the dot
    else:
        names = torchvision_names()
        known = model in names
    if not known:
        raise UserError(f"{library} has no model {model!r}{did_you_mean(model, names)}")


def model_name(name: str) -> str | None:
    """The full name of a model of torchvision or timm, given with or without the library; None if there is none."""
    library, _, rest = name.partition("/")
    if library in ("torchvision", "timm") and rest:
        return name
    return f"torchvision/{name}" if name in torchvision_names() else None


def torchvision_names() -> list[str]:
    from torchvision import models

    return models.list_models(module=models)


def _torchvision(name: str, channels: int, sizes: list[dict[str, Any]], pretrained: bool = False) -> nn.Module:
    from torchvision import models

    from hypersphere.nn.torchvision_vit import accept_any_size

    if channels != 3:
        others = "use torchvision/resnet18 or resnet50, hypersphere/… or a model of timm"
        raise UserError(f"torchvision/{name} takes images with 3 channels, got {channels}: {others}")
    options: dict[str, Any] = {"weights": "DEFAULT"} if pretrained else OPTIONS.get(name, {})
    made_for = models.get_model_weights(name).DEFAULT.transforms().crop_size[0]
    model = _build(f"torchvision/{name}", partial(models.get_model, name, **options), sizes, pretrained)
    where, model.num_features = _classifier(model)
    model.set_submodule(where, nn.Identity())
    model.classified_at, model.input_size = where, made_for
    return accept_any_size(model)


def _classifier(model: nn.Module) -> tuple[str, int]:
    """The name of the layer that classifies, and the width of its input: the last layer of all."""
    layers = [(where, layer) for where, layer in model.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    where, last = layers[-1]
    return where, last.in_features if isinstance(last, nn.Linear) else last.in_channels


def _timm(name: str, channels: int, sizes: list[dict[str, Any]], pretrained: bool = False) -> nn.Module:
    import timm

    make = partial(timm.create_model, name, pretrained=pretrained, num_classes=0, in_chans=channels)
    with offline_if_unreachable() if pretrained else contextlib.nullcontext():
        model = _build(f"timm/{name}", make, sizes, pretrained)
    model.input_size = model.pretrained_cfg["input_size"][-1]
    return model


def _build(name: str, make: Callable[..., Any], sizes: list[dict[str, Any]], pretrained: bool) -> Any:
    """Build the model with the first options in `sizes` that it has, or with none of them.

    `built_with` of the model has these options. A download of weights that fails is a UserError.
    """
    state = torch.get_rng_state()
    for options in (*sizes, {}):
        try:
            model = make(**options)
        except (OSError, RuntimeError) as error:
            if pretrained:
                raise UserError(f"could not download the weights of {name} ({first_line(error)})") from None
            if not options:
                raise
        except (AssertionError, TypeError, ValueError, ZeroDivisionError):
            if not options:
                raise
        else:
            model.built_with = options
            return model
        torch.set_rng_state(state)  # so that the weights do not depend on these attempts
    raise AssertionError("unreachable")
