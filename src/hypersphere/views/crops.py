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
    share = min(how.crop[0] * how.ratio[0] for how in recipe.augmentations)
    return math.ceil(recipe.size / math.sqrt(share))


def crop_numbers(recipe: Recipe, sample: Tensor, seed: int, epoch: int) -> np.ndarray:
    """B × V × numbers that the boxes of each image's views are made from."""
    views = range(len(recipe.augmentations))
    drawn = [uniforms(BOX_DRAWS, sample, seed=seed, epoch=epoch, view=view, stream=VIEWS) for view in views]
    return torch.stack(drawn, dim=1).numpy()


def crops(image: Any, numbers: np.ndarray, recipe: Recipe) -> np.ndarray:
    """V × 3 × size × size bytes of a PIL image."""
    from PIL import Image

    made = []
    for u, how in zip(numbers, recipe.augmentations, strict=True):
        boxes = box_of(torch.from_numpy(u)[None], how, image.height, image.width)
        top, left, height, width = (float(edge) for edge in boxes)
        box = (left, top, left + width, top + height)
        made.append(np.asarray(image.resize((recipe.size, recipe.size), Image.Resampling.BICUBIC, box=box)))
    return np.stack(made).transpose(0, 3, 1, 2)


def middle(image: Any, side: int) -> np.ndarray:
    """3 × side × side bytes: the image with its shorter side at `side`, and of that the middle."""
    from PIL import Image

    short = min(image.size)
    box = ((image.width - short) / 2, (image.height - short) / 2, (image.width + short) / 2, (image.height + short) / 2)
    return np.asarray(image.resize((side, side), Image.Resampling.BICUBIC, box=box)).transpose(2, 0, 1)


def finished(
    cropped: Tensor, sample: Tensor, recipe: Recipe, seed: int, epoch: int, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """B × V × C × H × W bytes → V views, on the device of the bytes."""
    memory = torch.channels_last if cropped.is_cuda else torch.contiguous_format
    views = []
    for view, how in enumerate(recipe.augmentations):
        d = draw(how, (recipe.size, recipe.size), sample, seed=seed, epoch=epoch, view=view)
        x = cropped[:, view].float() / 255
        x = torch.where(d.flip[:, None, None, None], x.flip(3), x)
        views.append(coloured(x, d, how, recipe).to(dtype, memory_format=memory))
    return tuple(views)
