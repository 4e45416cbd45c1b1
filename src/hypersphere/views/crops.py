"""Views in two parts: crops of each image where it is decoded, at its own size; the rest where the networks are.

From the same draws as `recipes.apply`, and equal to it but for rounding to bytes in between.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hypersphere.draws import VIEWS, uniforms
from hypersphere.views.recipes import BOX_DRAWS, Recipe, box_of, coloured, draw


def smallest_side(recipe: Recipe) -> int:
    """Pixels that the shorter side keeps when an image is decoded smaller: enough for the smallest crop."""
    hows = recipe.augmentations
    return math.ceil(max(recipe.size_of(how) / math.sqrt(how.crop[0] * how.ratio[0]) for how in hows))


def crop_numbers(recipe: Recipe, sample: Tensor, seed: int, epoch: int) -> np.ndarray:
    """B × V × numbers that the boxes of each image's views are made from."""
    views = range(len(recipe.augmentations))
    drawn = [uniforms(BOX_DRAWS, sample, seed=seed, epoch=epoch, view=view, stream=VIEWS) for view in views]
    return torch.stack(drawn, dim=1).numpy()


def crops(image: Any, numbers: np.ndarray, recipe: Recipe) -> np.ndarray:
    """The bytes of a PIL image's views, each 3 × its size × its size, one after the other."""
    from PIL import Image

    made = []
    for u, how in zip(numbers, recipe.augmentations, strict=True):
        side, boxes = recipe.size_of(how), box_of(torch.from_numpy(u)[None], how, image.height, image.width)
        top, left, height, width = (float(edge) for edge in boxes)
        box = (left, top, left + width, top + height)
        pixels = np.asarray(image.resize((side, side), Image.Resampling.BICUBIC, box=box))
        made.append(pixels.transpose(2, 0, 1).ravel())
    return np.concatenate(made)


def middle(image: Any, side: int) -> np.ndarray:
    """3 × side × side bytes: the image with its shorter side at `side`, and of that the middle."""
    from PIL import Image

    short = min(image.size)
    box = ((image.width - short) / 2, (image.height - short) / 2, (image.width + short) / 2, (image.height + short) / 2)
    return np.asarray(image.resize((side, side), Image.Resampling.BICUBIC, box=box)).transpose(2, 0, 1)


def finished(
    cropped: Tensor, sample: Tensor, recipe: Recipe, seed: int, epoch: int, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """B images' bytes, as `crops` gives them → V views, on the device of the bytes."""
    memory = torch.channels_last if cropped.is_cuda else torch.contiguous_format
    sides = [recipe.size_of(how) for how in recipe.augmentations]
    parts = cropped.split([3 * side * side for side in sides], dim=1)
    views = []
    for view, (how, side, part) in enumerate(zip(recipe.augmentations, sides, parts, strict=True)):
        d = draw(how, (recipe.size, recipe.size), sample, seed=seed, epoch=epoch, view=view)
        x = part.view(-1, 3, side, side).float() / 255
        x = torch.where(d.flip[:, None, None, None], x.flip(3), x)
        views.append(coloured(x, d, how, recipe).to(dtype, memory_format=memory))
    return tuple(views)
