"""The patch projection of vision transformers as a matrix product."""

import torch.nn.functional as F
from torch import Tensor, nn

IMAGE_CHANNELS = 8  # cuDNN is fast with at least as many


class PatchConvolution(nn.Conv2d):
    """A convolution whose patches do not overlap. On a GPU it is one matrix product of all patches with the filters.

    cuDNN pads the few channels of images, and takes more than ten times as long as the product.
    """

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x) if x.is_cuda else super().forward(x)

    def product(self, x: Tensor) -> Tensor:
        """The convolution as a product; what does not fill a patch at the right and at the bottom is left out."""
        height, width = (side // size for side, size in zip(x.shape[2:], self.kernel_size, strict=True))
        x = x[:, :, : height * self.kernel_size[0], : width * self.kernel_size[1]]
        patches = x.unflatten(3, (width, -1)).unflatten(2, (height, -1))  # B × C × height × rows × width × columns
        rows = patches.permute(0, 2, 4, 1, 3, 5).flatten(3)
        return F.linear(rows, self.weight.flatten(1), self.bias).permute(0, 3, 1, 2)


def multiply_patches(network: nn.Module) -> nn.Module:
    """Replace the convolutions that cut images into patches, in place; weights and their names stay."""
    for name, layer in network.named_modules():
        if type(layer) is nn.Conv2d and _cuts_images(layer):
            options = {"stride": layer.stride, "bias": layer.bias is not None}
            ours = nn.utils.skip_init(
                PatchConvolution, layer.in_channels, layer.out_channels, layer.kernel_size, **options
            )
            ours.weight, ours.bias = layer.weight, layer.bias
            network.set_submodule(name, ours.train(layer.training))
    return network


def _cuts_images(layer: nn.Conv2d) -> bool:
    plain = layer.padding == (0, 0) and layer.dilation == (1, 1) and layer.groups == 1
    return plain and layer.kernel_size == layer.stride and min(layer.stride) > 1 and layer.in_channels < IMAGE_CHANNELS
