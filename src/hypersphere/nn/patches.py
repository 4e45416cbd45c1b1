"""The patch projection of vision transformers as a matrix product."""

import torch.nn.functional as F
from torch import Tensor, nn

IMAGE_CHANNELS = 8  # cuDNN pads fewer channels


class PatchConvolution(nn.Conv2d):
    """A convolution whose patches do not overlap, as one matrix product of all patches with the filters."""

    def forward(self, x: Tensor) -> Tensor:
        """Multiply the patches; what does not fill one at the right and at the bottom is left out."""
        tall, wide = self.kernel_size
        height, width = x.shape[-2] // tall, x.shape[-1] // wide
        x = x[..., : height * tall, : width * wide]
        patches = x.unflatten(-1, (width, wide)).unflatten(-3, (height, tall))  # … × C × height × tall × width × wide
        rows = patches.movedim((-4, -2), (-5, -4)).flatten(-3)
        return F.linear(rows, self.weight.flatten(1), self.bias).movedim(-1, -3)


def multiply_patches(network: nn.Module) -> None:
    """Make the convolutions that cut images into patches `PatchConvolution`s. All else about them stays."""
    for layer in network.modules():
        if type(layer) is nn.Conv2d and _cuts_images(layer):
            layer.__class__ = PatchConvolution


def _cuts_images(layer: nn.Conv2d) -> bool:
    plain = layer.padding == (0, 0) and layer.dilation == (1, 1) and layer.groups == 1
    return plain and layer.kernel_size == layer.stride and min(layer.stride) > 1 and layer.in_channels < IMAGE_CHANNELS
