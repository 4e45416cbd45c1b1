"""Features from inside an encoder: the stages of a ResNet, and the patches of a vision transformer."""

from typing import Literal

from torch import Tensor, nn

from hypersphere.errors import UserError
from hypersphere.nn.blocks import heard

Level = Literal[1, 2, 3, 4, "patches"]
STAGES = ("layer1", "layer2", "layer3", "layer4")  # of the ResNets of torchvision and timm


class AtLevel(nn.Module):
    """An encoder whose output is that of one of its parts.

    Args:
        encoder: A ResNet or a vision transformer of torchvision or timm.
        level: For a ResNet, the stage 1, 2, 3 or 4: its output are maps of shape (N, C, H, W). For a vision
            transformer "patches": the normalized tokens of the patches after the last block, of shape (N, P, D), row by
            row, without class and register tokens.
        pooled: Whether to average over positions, to shape (N, C) or (N, D).

    Raises:
        UserError: If the encoder does not have this level.

    Example:
        >>> import torch
        >>> from hypersphere.nn import build_encoder
        >>> AtLevel(build_encoder("torchvision/resnet18"), 3)(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 256, 4, 4])
    """

    def __init__(self, encoder: nn.Module, level: Level, pooled: bool = False) -> None:
        super().__init__()
        self.encoder, self.pooled = encoder, pooled
        self.part, self.others = find_level(encoder, level)

    def forward(self, images: Tensor) -> Tensor:
        # a copy, since later layers may change the output in place
        with heard({"level": self.part}, lambda output: output.clone()) as found:
            self.encoder(images)
        output = found["level"]
        if output.ndim == 3:
            output = output[:, self.others :]
        if not self.pooled:
            return output
        return output.mean(dim=1 if output.ndim == 3 else (2, 3))


def find_level(encoder: nn.Module, level: Level) -> tuple[nn.Module, int]:
    """(the part of the encoder whose output has the level, the number of its first tokens that are no patches)."""
    kind = type(encoder).__name__
    stages = [getattr(encoder, name, None) for name in STAGES]
    if isinstance(level, int) and all(isinstance(stage, nn.Module) for stage in stages):
        if 1 <= level <= len(stages):
            return stages[level - 1], 0  # type: ignore[return-value]
        raise UserError(f"`level` must be from 1 to {len(stages)} for {kind}, got {level}")
    if level == "patches" and (tokens := _tokens(encoder)) is not None:
        return tokens
    known = "1 to 4 for ResNets and 'patches' for vision transformers of torchvision and timm"
    raise UserError(f"`level` {level!r} does not exist in {kind}: it is {known}")


def _tokens(encoder: nn.Module) -> tuple[nn.Module, int] | None:
    """(the last normalization over the tokens of a vision transformer, its number of class and register tokens)."""
    if hasattr(encoder, "class_token") and isinstance(inner := getattr(encoder, "encoder", None), nn.Module):
        return inner.ln, 1  # type: ignore[return-value] # torchvision
    norm, prefix = getattr(encoder, "norm", None), getattr(encoder, "num_prefix_tokens", None)
    return (norm, prefix) if isinstance(norm, nn.Module) and isinstance(prefix, int) else None  # timm
