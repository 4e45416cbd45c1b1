"""Views in two parts: crops of each image where it is decoded, at its own size; the rest where the networks are.

From the same draws as `recipes.apply`, and equal to it but for rounding to bytes in between.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hypersphere import kernels
from hypersphere.util.draws import VIEWS, uniforms
from hypersphere.views.dispatch import numbers_of
from hypersphere.views.recipes import (
    BOX_DRAWS,
    Augmentation,
    Recipe,
    by_kernel,
    coloured,
    draw,
    draw_late,
    late_changes,
    whole_box,
)


def smallest_side(recipe: Recipe) -> int:
    """Pixels that the shorter side keeps when an image is decoded smaller: enough for the smallest crop."""
    hows = recipe.augmentations
    return math.ceil(max(recipe.size_of(how) / math.sqrt(how.crop[0] * how.ratio[0]) for how in hows))


def crop_numbers(recipe: Recipe, sample: Tensor, seed: int, epoch: int, stream: int = VIEWS) -> np.ndarray:
    """B × V × numbers that the boxes of each image's views are made from."""
    views = range(len(recipe.augmentations))
    drawn = [uniforms(BOX_DRAWS, sample, seed=seed, epoch=epoch, view=view, stream=stream) for view in views]
    return torch.stack(drawn, dim=1).numpy()


def crops(image: Tensor, numbers: np.ndarray, recipe: Recipe) -> np.ndarray:
    """The bytes of an image's views, each 3 × its size × its size, one after the other; of 3 × H × W bytes."""
    made = []
    for u, how in zip(numbers, recipe.augmentations, strict=True):
        top, left, height, width = one_box(u, how, *image.shape[1:])
        made.append(_resized(image[:, top : top + height, left : left + width], recipe.size_of(how)))
    return np.concatenate([view.numpy().ravel() for view in made])


def one_box(u: np.ndarray, how: Augmentation, height: int, width: int) -> tuple[int, int, int, int]:
    """`box_of` for one image: in numpy, since so many small operations of torch would take as long as the crop."""
    area_draws, ratio_draws = u[:-2].reshape(-1, 2).T
    area = np.float32(height * width) * (np.float32(how.crop[0]) + np.float32(how.crop[1] - how.crop[0]) * area_draws)
    low, high = math.log(how.ratio[0]), math.log(how.ratio[1])
    ratio = np.exp(np.float32(low) + np.float32(high - low) * ratio_draws)
    half = np.float32(0.5)
    w, h = np.floor(np.sqrt(area * ratio) + half), np.floor(np.sqrt(area / ratio) + half)
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    if not fits.any():
        whole_h, whole_w = whole_box(how, height, width)
        return (height - whole_h) // 2, (width - whole_w) // 2, whole_h, whole_w
    first = int(fits.argmax())
    box_h, box_w = int(h[first]), int(w[first])
    return int(u[-2] * np.float32(height - box_h + 1)), int(u[-1] * np.float32(width - box_w + 1)), box_h, box_w


def _resized(image: Tensor, side: int) -> Tensor:
    """Bicubic, antialiased, in bytes: torch does it with vector instructions where PIL does not."""
    from torchvision.transforms.v2 import InterpolationMode, functional

    return functional.resize(image, [side, side], interpolation=InterpolationMode.BICUBIC, antialias=True)


def middle(image: Any, side: int) -> np.ndarray:
    """3 × side × side bytes: the image with its shorter side at `side`, and of that the middle; of 3 × H × W bytes or a
    PIL image, and by PIL, as others prepare images for an encoder."""
    from PIL import Image

    picture = Image.fromarray(image.permute(1, 2, 0).numpy()) if isinstance(image, Tensor) else image
    width, height = picture.size
    short = min(width, height)
    box = ((width - short) / 2, (height - short) / 2, (width + short) / 2, (height + short) / 2)
    return np.asarray(picture.resize((side, side), Image.Resampling.BICUBIC, box=box)).transpose(2, 0, 1)


def middle_of(image: Tensor, how: None, side: int) -> np.ndarray:
    """As a `Stream` of files makes it."""
    return middle(image, side)


def finished(
    cropped: Tensor,
    sample: Tensor,
    recipe: Recipe,
    seed: int,
    epoch: int,
    dtype: torch.dtype,
    stream: int = VIEWS,
) -> tuple[Tensor, ...]:
    """B images' bytes, as `crops` gives them → V views, on the device of the bytes; by kernels on a GPU."""
    sides = [recipe.size_of(how) for how in recipe.augmentations]
    parts = cropped.split([3 * side * side for side in sides], dim=1)
    make = fused if kernels.usable(cropped) else reference
    hows = zip(recipe.augmentations, sides, parts, strict=True)
    return tuple(
        make(part, how, side, recipe, sample, dtype, seed=seed, epoch=epoch, view=view, stream=stream)
        for view, (how, side, part) in enumerate(hows)
    )


def reference(
    part: Tensor, how: Augmentation, side: int, recipe: Recipe, sample: Tensor, dtype: torch.dtype, **key: int
) -> Tensor:
    """What a view is."""
    memory = torch.channels_last if part.is_cuda else torch.contiguous_format
    d = draw(how, (side, side), sample, **key)
    x = part.reshape(-1, 3, side, side).float() / 255
    x = torch.where(d.flip[:, None, None, None], x.flip(3), x)
    return coloured(x, d, how, recipe).to(dtype, memory_format=memory)


def fused(
    part: Tensor, how: Augmentation, side: int, recipe: Recipe, sample: Tensor, dtype: torch.dtype, **key: int
) -> Tensor:
    """The same by kernels, without waiting for the device (RandAugment of large images does): the next batch can be
    asked for meanwhile."""
    from hypersphere.kernels.crops import finish_crops
    from hypersphere.kernels.views import Numbers

    plain, bare, kind = by_kernel(how, recipe, dtype)
    shape = (len(part), 3, side, side)
    out = torch.empty(shape, dtype=kind, device=part.device, memory_format=torch.channels_last)
    kernel = recipe.blur_kernel if how.blur else 0
    numbers = Numbers(**numbers_of(plain, side, side))
    finish_crops(part, sample, numbers, out, kernel=kernel, mean=bare.mean, std=bare.std, **key)
    if how.operations:
        out = late_changes(out, draw_late(how, sample, **key), how, recipe)
    return out.to(dtype, memory_format=torch.channels_last)
