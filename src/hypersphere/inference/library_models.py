"""Models of torchvision and timm as encoders: their networks, and how their images are preprocessed."""

from dataclasses import replace
from typing import Any

from torch import nn

from hypersphere.nn.libraries import build_model, pretrained_model
from hypersphere.runs.preprocess import Preprocess
from hypersphere.views import ViewPipeline, folder_pipeline


def library_model(name: str, *, pretrained: bool = True, size: int | None = None) -> tuple[nn.Module, Preprocess]:
    """Build `torchvision/NAME` or `timm/NAME` with its preprocessing.

    Args:
        name: Name of the model.
        pretrained: Whether it has the weights that its library publishes.
        size: Side of its input in pixels. None: that of its weights.
    """
    encoder = pretrained_model(name) if pretrained else build_model(name)
    views = normalized_as_stated(encoder, folder_pipeline(size or int(encoder.input_size)))  # type: ignore[arg-type]
    return encoder, Preprocess(views.resize or views.size, views.size, views.mean, views.std, views.resize, views.crop)


def normalized_as_stated(network: nn.Module, recipe: ViewPipeline) -> ViewPipeline:
    """The recipe with the mean and standard deviation that a model of timm states; for grey images, their averages."""
    stated = [tuple(map(float, stated_by_timm(network).get(name) or ())) for name in ("mean", "std")]
    if not all(stated):
        return recipe
    mean, std = stated if len(recipe.mean) == len(stated[0]) else [(sum(values) / len(values),) for values in stated]
    return replace(recipe, mean=mean, std=std)


def stated_by_timm(network: nn.Module) -> dict[str, Any]:
    """The input of a model of timm: input_size, mean, std and more; empty for other models."""
    return getattr(network, "pretrained_cfg", None) or getattr(network, "default_cfg", None) or {}
