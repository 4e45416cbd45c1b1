"""Options of a run that concern its encoder."""

from dataclasses import dataclass
from typing import Literal

from hypersphere.util.option_fields import option


@dataclass(frozen=True)
class EncoderOptions:
    """Options of the encoder."""

    encoder: str = "torchvision/resnet18"
    """Encoder: torchvision/resnet18, timm/vit_small_patch16_224 or any other of theirs, hypersphere/alexnet or
    hypersphere/digits; or your own, as package.module:function."""
    init: str | None = None
    """Weights that the encoder starts from: a .safetensors or .pt file, a run's folder, an exported encoder; or
    pretrained, for those of torchvision or timm. The hash covers this name, not the weights (None: random)."""
    stem: Literal["cifar", "imagenet"] = "cifar"
    """First layers of a ResNet: cifar keeps small images at full size."""
    norm: Literal["batch", "group", "none"] = "batch"
    """Normalization in encoder and heads; group also standardizes the encoder's weights."""
    freeze_patches: bool = False
    """Whether the patch projection of a vision transformer keeps its first weights, which stabilizes training."""
    dimensions: int | None = option(None, least=2)
    """Outputs of the encoder (None: its own number); 2 puts features on the circle."""
