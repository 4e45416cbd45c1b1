"""torchvision's vision transformers with the same weights, for images of any size."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.vision_transformer import VisionTransformer

from hypersphere.nn.transformers import resampled_grid


class AnySizeViT(VisionTransformer):
    """A VisionTransformer that interpolates its position embeddings, and fills up the last patches with zeros."""

    def forward(self, x: Tensor) -> Tensor:
        side, positions = self.patch_size, self.encoder.pos_embedding
        rows, columns = (-(-pixels // side) for pixels in x.shape[2:])
        x = F.pad(x, (0, columns * side - x.shape[3], 0, rows * side - x.shape[2]))
        patches = self.conv_proj(x).flatten(2).transpose(1, 2) + resampled_grid(positions[:, 1:], (rows, columns))
        of_class = (self.class_token + positions[:, :1]).expand(len(x), -1, -1)
        tokens = self.encoder.dropout(torch.cat([of_class, patches], dim=1))
        return self.heads(self.encoder.ln(self.encoder.layers(tokens))[:, 0])


def accept_any_size(model: nn.Module) -> nn.Module:
    """Let a vision transformer accept images of any size, in place. Other models stay as they are."""
    if type(model) is VisionTransformer:
        model.__class__ = AnySizeViT
    return model
