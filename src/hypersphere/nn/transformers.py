"""Vision transformers: which networks are, their patch projection, and position embeddings for other input sizes."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def is_transformer(network: nn.Module) -> bool:
    """Whether a network is a transformer: it has attention, and more layer norms than batch and group norms.

    Args:
        network: Any network.

    Returns:
        True for ViTs, Swin and others of their kind; False for convolutional networks, also those with some attention.

    Example:
        >>> hs.nn.is_transformer(torch.nn.TransformerEncoderLayer(d_model=8, nhead=2))
        True
        >>> hs.nn.is_transformer(hs.nn.build_encoder("torchvision/resnet18"))
        False
    """
    modules = list(network.modules())
    names = [type(module).__name__.lower() for module in modules]
    by_token = sum(isinstance(m, nn.LayerNorm) or "rmsnorm" in name for m, name in zip(modules, names, strict=True))
    by_channel = sum(isinstance(module, _BatchNorm | nn.GroupNorm) for module in modules)
    return by_token > by_channel and any("attention" in name or "attn" in name for name in names)


def patch_projection(network: nn.Module) -> nn.Conv2d | None:
    """The layer that cuts images into patches: the first convolution, if its patches do not overlap."""
    first = next((layer for layer in network.modules() if isinstance(layer, nn.Conv2d)), None)
    return first if first is not None and first.kernel_size == first.stride and max(first.stride) > 1 else None


def resampled_positions(positions: Tensor, count: int) -> Tensor:
    """Interpolate the position embeddings (…, N, D) of a square grid to `count` positions (bicubic, as timm does).

    The first few may be of tokens such as the class token, which are kept.

    Raises:
        ValueError: If there are no square grids of N and of `count` positions beside the same number of tokens.

    Example:
        >>> resampled_positions(torch.ones(1, 1 + 14 * 14, 8), 1 + 6 * 6).shape
        torch.Size([1, 37, 8])
    """
    there = positions.shape[-2]
    for tokens in range(min(there, count, 17)):
        old, new = math.isqrt(there - tokens), math.isqrt(count - tokens)
        if old * old == there - tokens and new * new == count - tokens:
            kept, grid = positions[..., :tokens, :], positions[..., tokens:, :]
            return torch.cat([kept, resampled_grid(grid, (new, new))], dim=-2)
    raise ValueError(f"{there} positions and {count} are not two square grids")


def resampled_grid(grid: Tensor, size: tuple[int, int]) -> Tensor:
    """Interpolate the embeddings (…, side², D) of a square grid to (…, height · width, D)."""
    *leading, places, width = grid.shape
    side = math.isqrt(places)
    if (side, side) == size:
        return grid
    maps = grid.reshape(-1, side, side, width).permute(0, 3, 1, 2).float()
    resized = F.interpolate(maps, size, mode="bicubic", antialias=True)
    return resized.permute(0, 2, 3, 1).reshape(*leading, -1, width).to(grid.dtype)
