"""The larger parts of an encoder, and how wide they are."""

from torch import nn
from torch.nn.modules.conv import _ConvNd


def blocks_of(encoder: nn.Module) -> dict[str, nn.Module]:
    """Its larger parts, by name: the children that are networks themselves, of the encoder or of the part that holds
    nearly all of its weights (the stages of a ResNet, the blocks of a vision transformer)."""
    parts, whole = dict(encoder.named_children()), _size(encoder)
    while main := [
        name for name, part in parts.items() if _size(part) > 0.9 * whole and len(list(part.children())) > 1
    ]:
        parts = {f"{main[0]}.{name}": child for name, child in parts[main[0]].named_children()}
    return {name: part for name, part in parts.items() if _size(part) and any(True for _ in part.children())}


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def width_of(block: nn.Module) -> int:
    """Channels that a block puts out: as many as its last layer."""
    last = [layer for layer in block.modules() if isinstance(layer, nn.Linear | _ConvNd)][-1]
    return last.out_features if isinstance(last, nn.Linear) else last.out_channels
