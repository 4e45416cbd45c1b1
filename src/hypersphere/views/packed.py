"""Views of images of different sizes that lie one after the other in one block of memory."""

from dataclasses import dataclass

import torch
from torch import Tensor

from hypersphere import kernels
from hypersphere.util.random_numbers import Key
from hypersphere.views import crops
from hypersphere.views.pipeline import Augmentation, ViewPipeline, apply, draw


@dataclass(frozen=True)
class PackedImages:
    """N images with three channels, one after the other.

    Attributes:
        pixels: Bytes of all images, each channel by channel: a tensor of one dimension, uint8.
        starts: Tensor of shape (N,), int64: where each image begins.
        heights: Tensor of shape (N,), int32.
        widths: Tensor of shape (N,), int32.

    Example:
        >>> from hypersphere.views.packed import PackedImages
        >>> images = PackedImages.of(torch.zeros(5, 3, 20, 30, dtype=torch.uint8), torch.tensor([4, 2]))
        >>> images.starts.tolist(), images.image(1).shape
        ([7200, 3600], torch.Size([3, 20, 30]))
    """

    pixels: Tensor
    starts: Tensor
    heights: Tensor
    widths: Tensor

    @staticmethod
    def of(pixels: Tensor, sample: Tensor) -> "PackedImages":
        """Some images of one size: `pixels[sample]`, without a copy.

        Args:
            pixels: Images of shape (N, 3, H, W), uint8, contiguous.
            sample: Indices of B images, int64.
        """
        _, channels, height, width = pixels.shape
        heights, widths = (
            torch.full((len(sample),), side, dtype=torch.int32, device=pixels.device) for side in (height, width)
        )
        return PackedImages(pixels.flatten(), sample * (channels * height * width), heights, widths)

    def chosen(self, sample: Tensor) -> "PackedImages":
        """Some of the images, without a copy of their pixels."""
        return PackedImages(self.pixels, self.starts[sample], self.heights[sample], self.widths[sample])

    def image(self, number: int) -> Tensor:
        """One image, of shape (3, H, W)."""
        start, height, width = (int(table[number]) for table in (self.starts, self.heights, self.widths))
        return self.pixels[start : start + 3 * height * width].view(3, height, width)


def has_kernels(device: torch.device) -> bool:
    """Whether kernels make the views of packed images on this device. Without them it takes an operation per image."""
    return kernels.runs_on(torch.empty(0, device=device))


def packed_views(
    hows: tuple[Augmentation, ...],
    recipe: ViewPipeline,
    images: PackedImages,
    sample: Tensor,
    key: Key,
    dtype: torch.dtype,
) -> tuple[Tensor, ...]:
    """A view of B images for each augmentation; by kernels on a GPU.

    Args:
        hows: The augmentations.
        recipe: The pipeline.
        images: The B images.
        sample: Their indices in the dataset, which random numbers depend on, shape (B,), int64.
        key: Seed, epoch and stream of the random numbers.
        dtype: Data type of the views.

    Returns:
        One tensor of shape (B, 3, size, size) per augmentation; channels last on a GPU.
    """
    make = fused if kernels.usable(images.pixels) else reference
    return tuple(make(how, recipe, images, sample, key, dtype, view=view) for view, how in enumerate(hows))


def reference(
    how: Augmentation,
    recipe: ViewPipeline,
    images: PackedImages,
    sample: Tensor,
    key: Key,
    dtype: torch.dtype,
    *,
    view: int,
) -> Tensor:
    """One view, image by image and operation by operation."""
    memory = torch.channels_last if images.pixels.is_cuda else torch.contiguous_format
    made = []
    for place, number in enumerate(sample.split(1)):
        image = images.image(place)[None]
        drawn = draw(how, (image.shape[2], image.shape[3]), number, key, view=view)
        made.append(apply(image, drawn, how, recipe))
    return torch.cat(made).to(dtype, memory_format=memory)


def fused(
    how: Augmentation,
    recipe: ViewPipeline,
    images: PackedImages,
    sample: Tensor,
    key: Key,
    dtype: torch.dtype,
    *,
    view: int,
) -> Tensor:
    """One view by kernels: one for the crop, and those of `views.crops.fused` for the rest."""
    from hypersphere.kernels.packed import crop_packed
    from hypersphere.views.kernel_style import kernel_style

    side = recipe.size_of(how)
    style, _ = kernel_style(how, recipe, side, side, dtype)
    part = torch.empty(len(sample), 3 * side * side, device=images.pixels.device)
    crop_packed(images, sample, style, how.ratio, part, key, view=view)
    return crops.fused(how, recipe, part, sample, key, dtype, view=view)
