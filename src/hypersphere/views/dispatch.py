"""Views of images in memory: by kernels on a GPU, a single one if they are small; elsewhere operation by operation."""

from itertools import groupby

import torch
from torch import Tensor

from hypersphere import kernels
from hypersphere.util.random_numbers import PROBE, VIEWS, Key
from hypersphere.views.packed import PackedImages, packed_views
from hypersphere.views.pipeline import (
    Augmentation,
    Late,
    ViewPipeline,
    apply,
    check_images,
    draw,
    draw_late,
    late_changes,
)


class Views:
    """Makes augmented views of images. A view is a function of (seed, epoch, sample, view).

    Args:
        recipe: The pipeline: augmentations, size and normalization.
        seed: Seed of the random draws.

    Example:
        >>> pixels = torch.zeros(100, 3, 32, 32, dtype=torch.uint8)
        >>> views = hs.views.Views(hs.views.PIPELINES["cifar10"], seed=0)
        >>> v1, v2 = views.training(pixels, sample=torch.arange(8), epoch=0)
        >>> v1.shape
        torch.Size([8, 3, 32, 32])
    """

    def __init__(self, recipe: ViewPipeline, seed: int) -> None:
        self.recipe, self.seed = recipe, seed

    def training(
        self, pixels: Tensor, sample: Tensor, epoch: int | Tensor, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, ...]:
        """The training views of some images.

        Args:
            pixels: All images of the dataset, of shape (N, C, H, W), uint8.
            sample: Indices of B images, int64.
            epoch: The epoch; a 0-dim tensor in a captured CUDA graph.
            dtype: Data type of the views.

        Returns:
            One tensor of shape (B, C, size, size) per augmentation; channels last on a GPU.

        Raises:
            UserError: If `pixels` are not bytes with the channels of the pipeline.
        """
        return _views(self.recipe.augmentations, self.recipe, pixels, sample, Key(self.seed, epoch, VIEWS), dtype)

    def probing(
        self, pixels: Tensor, sample: Tensor, epoch: int | Tensor, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """The view of some images that the linear probe trains with: arguments as for `training`, one tensor."""
        return _views((self.recipe.probe,), self.recipe, pixels, sample, Key(self.seed, epoch, PROBE), dtype)[0]


def _views(
    hows: tuple[Augmentation, ...], recipe: ViewPipeline, pixels: Tensor, sample: Tensor, key: Key, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    check_images(pixels, recipe)
    if fusible(pixels, recipe):
        return fused(hows, recipe, pixels, sample, key, dtype)
    if kernels.usable(pixels) and pixels.is_contiguous() and pixels.shape[1] == 3:
        return packed_views(hows, recipe, PackedImages.of(pixels, sample), sample, key, dtype)
    return reference(hows, recipe, pixels, sample, key, dtype)


def fusible(pixels: Tensor, recipe: ViewPipeline) -> bool:
    """Whether one kernel can make the views: of images on a GPU that fit into a program's registers."""
    if not (kernels.usable(pixels) and pixels.is_contiguous() and pixels.shape[1] == len(recipe.mean) in (1, 3)):
        return False
    from hypersphere.kernels.views import LARGEST_SOURCE, LARGEST_VIEW

    largest = max(recipe.size_of(how) for how in (recipe.probe, *recipe.augmentations))
    return largest <= LARGEST_VIEW and max(pixels.shape[2:]) <= LARGEST_SOURCE


def reference(
    hows: tuple[Augmentation, ...], recipe: ViewPipeline, pixels: Tensor, sample: Tensor, key: Key, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """The views, operation by operation."""
    images, shape = pixels[sample], (pixels.shape[2], pixels.shape[3])
    memory = torch.channels_last if pixels.is_cuda else torch.contiguous_format
    draws = [draw(how, shape, sample, key, view=view) for view, how in enumerate(hows)]
    views = [apply(images, d, how, recipe) for d, how in zip(draws, hows, strict=True)]
    return tuple(view.to(dtype, memory_format=memory) for view in views)


def fused(
    hows: tuple[Augmentation, ...], recipe: ViewPipeline, pixels: Tensor, sample: Tensor, key: Key, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """The views by a kernel, with one launch for consecutive views with equal augmentations."""
    from hypersphere.kernels.views import fused_views
    from hypersphere.views.kernel_style import kernel_style

    (channels, height, width), views = pixels.shape[1:], list[Tensor]()
    for how, equal in groupby(hows):
        count, size = len(list(equal)), recipe.size_of(how)
        style, kernel_dtype = kernel_style(how, recipe, height, width, dtype)
        shape = (count * len(sample), channels, size, size)
        out = torch.empty(shape, dtype=kernel_dtype, device=pixels.device, memory_format=torch.channels_last)
        fused_views(pixels, sample, style, out, key, first=len(views))
        if how.operations:
            draws = [draw_late(how, sample, key, view=len(views) + n) for n in range(count)]
            late = Late(*(torch.cat(parts) for parts in zip(*draws, strict=True)))
            out = late_changes(out, late, how, recipe).to(dtype, memory_format=torch.channels_last)
        views += out.chunk(count)
    return tuple(views)
