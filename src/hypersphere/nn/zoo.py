"""Models of torchvision and timm as encoders: without the layer that classifies."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from hypersphere.errors import UserError, first_line, similar

# Without heads that learn beside the last layer, and make the output a tuple.
_ALONE = {"aux_logits": False, "init_weights": True}
OPTIONS = {"googlenet": _ALONE, "inception_v3": _ALONE}


def build_model(name: str, channels: int = 3, pretrained: bool = False) -> nn.Module:
    """`torchvision/NAME` or `timm/NAME`; its `num_features` are the outputs, its `input_size` the pixels of a side."""
    check_model(name)
    library, _, model = name.partition("/")
    if library == "timm":
        return _timm(model, channels, pretrained)
    return _torchvision(model, channels, pretrained)


def check_model(name: str) -> None:
    """Is there `torchvision/NAME` or `timm/NAME`? Found out without making it."""
    library, _, model = name.partition("/")
    if library == "timm":
        try:
            import timm
        except ImportError:
            raise UserError(f"{name} needs timm: pip install 'hypersphere[timm]'") from None
        names, known = timm.list_models(), timm.is_model(model.partition(".")[0])  # after the dot: which weights
    else:
        names = torchvision_names()
        known = model in names
    if not known:
        raise UserError(f"{library} has no model {model!r}{similar(model, names)}")


def model_name(name: str) -> str | None:
    """The whole name of a model of one of the libraries, given with or without the library's; None: no such model."""
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
        others = "torchvision/resnet18 and resnet50, hypersphere/… and most of timm take any number"
        raise UserError(f"torchvision/{name} takes images of three channels, not {channels}: {others}")
    options: dict[str, Any] = {"weights": "DEFAULT"} if pretrained else OPTIONS.get(name, {})
    model = _made(f"torchvision/{name}", partial(models.get_model, name, **options), pretrained)
    linear = [(where, layer) for where, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise UserError(f"torchvision/{name} ends in no linear layer: its features are not known")
    where, last = linear[-1]
    model.set_submodule(where, nn.Identity())
    model.num_features, model.classified_at = last.in_features, where
    model.input_size = models.get_model_weights(name).DEFAULT.transforms().crop_size[0]
    return model


def _timm(name: str, channels: int, pretrained: bool) -> nn.Module:
    import timm

    make = partial(timm.create_model, name, pretrained=pretrained, num_classes=0, in_chans=channels)
    model = _made(f"timm/{name}", make, pretrained)
    model.input_size = model.pretrained_cfg["input_size"][-1]
    return model


def _made(name: str, make: Callable[[], Any], pretrained: bool) -> Any:
    """The model; where weights that were asked for cannot be fetched, that in one line."""
    try:
        return make()
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        raise UserError(f"the weights of {name} could not be fetched ({first_line(error)})") from None
