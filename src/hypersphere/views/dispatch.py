"""The views of a data set's images: by one kernel where they are small and on a GPU, else operation by operation."""

import math
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from hypersphere import kernels
from hypersphere.util.draws import PROBE, VIEWS
from hypersphere.views.recipes import (
    Augmentation,
    Late,
    Recipe,
    apply,
    by_kernel,
    check_images,
    draw,
    draw_late,
    late_changes,
    whole_box,
)


class Key(NamedTuple):
    """What the random numbers of a batch depend on, beside sample and view."""

    seed: int
    epoch: int | Tensor
    stream: int


class Views:
    """The views of a recipe, as the training loop and the probes call them, channels last on a GPU.

    They are of pixels[sample]: `pixels` are all images of the data set, N × C × H × W bytes, `sample` B numbers among
    them. A captured CUDA graph takes `epoch` as a 0-dim tensor, where each replay finds its own.
    """

    def __init__(self, recipe: Recipe, seed: int) -> None:
        self.recipe, self.seed = recipe, seed

    def training(
        self, pixels: Tensor, sample: Tensor, epoch: int | Tensor, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, ...]:
        return _views(self.recipe.augmentations, self.recipe, pixels, sample, Key(self.seed, epoch, VIEWS), dtype)

    def probing(
        self, pixels: Tensor, sample: Tensor, epoch: int | Tensor, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        return _views((self.recipe.probe,), self.recipe, pixels, sample, Key(self.seed, epoch, PROBE), dtype)[0]


def _views(
    hows: tuple[Augmentation, ...], recipe: Recipe, pixels: Tensor, sample: Tensor, key: Key, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    check_images(pixels, recipe)
    make = fused if fusible(pixels, recipe) else reference
    return make(hows, recipe, pixels, sample, key, dtype)


def fusible(pixels: Tensor, recipe: Recipe) -> bool:
    """Whether one kernel makes the views: of colour or grey images on a GPU that fit into a program's registers."""
    if not (kernels.usable(pixels) and pixels.is_contiguous() and pixels.shape[1] == len(recipe.mean) in (1, 3)):
        return False
    from hypersphere.kernels.views import LARGEST_SOURCE, LARGEST_VIEW

    largest = max(recipe.size_of(how) for how in (recipe.probe, *recipe.augmentations))
    return largest <= LARGEST_VIEW and max(pixels.shape[2:]) <= LARGEST_SOURCE


def reference(
    hows: tuple[Augmentation, ...], recipe: Recipe, pixels: Tensor, sample: Tensor, key: Key, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """What the views are."""
    images, shape = pixels[sample], (pixels.shape[2], pixels.shape[3])
    memory = torch.channels_last if pixels.is_cuda else torch.contiguous_format
    draws = [draw(how, shape, sample, view=view, **key._asdict()) for view, how in enumerate(hows)]
    views = [apply(images, d, how, recipe) for d, how in zip(draws, hows, strict=True)]
    return tuple(view.to(dtype, memory_format=memory) for view in views)


def fused(
    hows: tuple[Augmentation, ...], recipe: Recipe, pixels: Tensor, sample: Tensor, key: Key, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """The same by a kernel, launched once for neighbouring views with equal augmentations. RandAugment is none of the
    kernel's: it comes after it."""
    from hypersphere.kernels.views import Numbers, fused_views

    (channels, height, width), views = pixels.shape[1:], list[Tensor]()
    for how, equal in groupby(hows):
        count, size = len(list(equal)), recipe.size_of(how)
        plain, bare, kind = by_kernel(how, recipe, dtype)
        shape = (count * len(sample), channels, size, size)
        out = torch.empty(shape, dtype=kind, device=pixels.device, memory_format=torch.channels_last)
        fused_views(
            pixels,
            sample,
            Numbers(**numbers_of(plain, height, width)),
            out,
            first=len(views),
            kernel=recipe.blur_kernel if how.blur else 0,
            mean=bare.mean,
            std=bare.std,
            **key._asdict(),
        )
        if how.operations:
            draws = [draw_late(how, sample, view=len(views) + n, **key._asdict()) for n in range(count)]
            late = Late(*(torch.cat(parts) for parts in zip(*draws, strict=True)))
            out = late_changes(out, late, how, recipe).to(dtype, memory_format=torch.channels_last)
        views += out.chunk(count)
    return tuple(views)


def numbers_of(how: Augmentation, height: int, width: int) -> dict[str, float]:
    """The augmentation by the names of `kernels.views.Numbers`, where a range is its low end and its span."""
    low, high = (math.log(ratio) for ratio in how.ratio)
    whole_height, whole_width = whole_box(how, height, width)
    alike = ("flip", "jitter", "brightness", "contrast", "saturation", "hue", "grey", "blur", "solarize")
    return {
        "area": how.crop[0],
        "area_span": how.crop[1] - how.crop[0],
        "log_ratio": low,
        "log_ratio_span": high - low,
        "whole_height": whole_height,
        "whole_width": whole_width,
        "sigma": how.sigma[0],
        "sigma_span": how.sigma[1] - how.sigma[0],
        **{name: getattr(how, name) for name in alike},
    }
