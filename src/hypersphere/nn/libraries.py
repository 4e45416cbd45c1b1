"""Models of torchvision and timm as encoders, without their classification layer."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from hypersphere.errors import UserError, did_you_mean, first_line
from hypersphere.nn.hub import offline_if_unreachable

_NO_AUXILIARY_HEADS = {"aux_logits": False, "init_weights": True}  # with them the output is a tuple
OPTIONS = {"googlenet": _NO_AUXILIARY_HEADS, "inception_v3": _NO_AUXILIARY_HEADS}


def build_model(name: str, channels: int = 3, pretrained: bool = False) -> nn.Module:
    """Build `torchvision/NAME` or `timm/NAME`, with attributes `num_features` and `input_size` (pixels a side)."""
    check_model(name)
    library, _, model = name.partition("/")
    if library == "timm":
        return _timm(model, channels, pretrained)
    return _torchvision(model, channels, pretrained)


def check_model(name: str) -> None:
    """Check that `torchvision/NAME` or `timm/NAME` exists, without building it."""
    library, _, model = name.partition("/")
    if library == "timm":
        try:
            import timm
        except ImportError:
            raise UserError(f"{name} needs timm: pip install 'hypersphere[timm]'") from None
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


def _torchvision(name: str, channels: int, pretrained: bool) -> nn.Module:
    from torchvision import models

    if channels != 3:
        others = "use torchvision/resnet18 or resnet50, hypersphere/… or a model of timm"
        raise UserError(f"torchvision/{name} takes images with 3 channels, got {channels}: {others}")
    options: dict[str, Any] = {"weights": "DEFAULT"} if pretrained else OPTIONS.get(name, {})
    model = _build(f"torchvision/{name}", partial(models.get_model, name, **options), pretrained)
    linear = [(where, layer) for where, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise UserError(f"torchvision/{name} has no linear layer, so its features are unknown: choose another model")
    where, last = linear[-1]
    model.set_submodule(where, nn.Identity())
    model.num_features, model.classified_at = last.in_features, where
    model.input_size = models.get_model_weights(name).DEFAULT.transforms().crop_size[0]
    return model


def _timm(name: str, channels: int, pretrained: bool) -> nn.Module:
    import timm

    make = partial(timm.create_model, name, pretrained=pretrained, num_classes=0, in_chans=channels)
    with offline_if_unreachable() if pretrained else contextlib.nullcontext():
        model = _build(f"timm/{name}", make, pretrained)
    model.input_size = model.pretrained_cfg["input_size"][-1]
    return model


def _build(name: str, make: Callable[[], Any], pretrained: bool) -> Any:
    """Build the model; a download of weights that fails is a UserError."""
    try:
        return make()
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        raise UserError(f"could not download the weights of {name} ({first_line(error)})") from None
