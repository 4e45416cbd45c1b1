"""The three normalizations of tab:bn and of BYOL without batch statistics."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

Norm = Literal["batch", "group", "none"]  # group: GroupNorm, with the weights before it standardized


def norm_layer(norm: Norm, channels: int, spatial: bool) -> nn.Module:
    match norm:
        case "batch":
            return nn.BatchNorm2d(channels) if spatial else nn.BatchNorm1d(channels)
        case "group":
            groups = next(g for g in (32, 16, 8, 4, 2, 1) if channels % g == 0)
            return nn.GroupNorm(groups, channels)
        case "none":
            return nn.Identity()
    raise ValueError(f"norm must be one of {', '.join(get_args(Norm))}, not {norm!r}")


def norm2d(norm: Norm) -> Callable[[int], nn.Module]:
    """As torchvision's models take it: channels → layer."""
    return lambda channels: norm_layer(norm, channels, spatial=True)


class Standardize(nn.Module):
    """Weight standardization: each filter's weights to mean 0 and norm 1 (variance 1 / fan-in)."""

    def forward(self, weight: Tensor) -> Tensor:
        rows = weight.flatten(1)
        centred = rows - rows.mean(dim=1, keepdim=True)
        return (centred * torch.rsqrt(rows.var(dim=1, keepdim=True) + 1e-5)).view_as(weight) / rows.shape[1] ** 0.5


def standardize_weights(model: nn.Module) -> nn.Module:
    """Standardize every convolution, in place."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            register_parametrization(module, "weight", Standardize())
    return model
