"""Views in two parts: workers crop each decoded image at its own size, and the rest runs on the networks' device.

The draws are those of `pipeline.apply`, and so are the views, up to the rounding to bytes in between.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hypersphere import kernels
from hypersphere.util.random_numbers import Key, uniforms
from hypersphere.views.pipeline import (
    BOX_DRAWS,
    Augmentation,
    ViewPipeline,
    coloured,
    draw,
    draw_late,
    late_changes,
    whole_box,
)


def decode_side(recipe: ViewPipeline) -> int:
    """Pixels of the shorter side to decode an image at: enough for the smallest crop."""
    hows = recipe.augmentations
    return math.ceil(max(recipe.size_of(how) / math.sqrt(how.crop[0] * how.ratio[0]) for how in hows))


def crop_draws(recipe: ViewPipeline, sample: Tensor, key: Key) -> np.ndarray:
    """Random numbers for the boxes of each image's views, B × V × BOX_DRAWS."""
    views = range(len(recipe.augmentations))
    drawn = [uniforms(BOX_DRAWS, sample, view=view, **key._asdict()) for view in views]
    return torch.stack(drawn, dim=1).numpy()


def crops(image: Tensor, numbers: np.ndarray, recipe: ViewPipeline) -> np.ndarray:
    """Crops of one image, C × H × W bytes, for all its views: flattened and concatenated bytes."""
    made = []
    for u, how in zip(numbers, recipe.augmentations, strict=True):
        top, left, height, width = one_box(u, how, *image.shape[1:])
        made.append(_resized(image[:, top : top + height, left : left + width], recipe.size_of(how)))
    return np.concatenate([view.numpy().ravel() for view in made])


def one_box(u: np.ndarray, how: Augmentation, height: int, width: int) -> tuple[int, int, int, int]:
    """`box_of` for one image, in numpy because many small torch operations would take as long as the crop."""
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
    """Bicubic with antialiasing, on bytes: torch uses vector instructions, PIL does not."""
    from torchvision.transforms.v2 import InterpolationMode, functional

    return functional.resize(image, [side, side], interpolation=InterpolationMode.BICUBIC, antialias=True)


def middle(image: Any, side: int) -> np.ndarray:
    """Resize the shorter side of an image to `side` and crop the centre, by PIL as other libraries do.

    The image is a PIL image or C × H × W bytes. Returns C × side × side bytes.
    """
    if not isinstance(image, Tensor):
        return _middle(image, side).transpose(2, 0, 1)
    if len(image) == 3:
        return _middle(_picture(image.permute(1, 2, 0)), side).transpose(2, 0, 1)
    return np.stack([_middle(_picture(channel), side) for channel in image])


def _picture(pixels: Tensor) -> Any:
    from PIL import Image

    return Image.fromarray(pixels.contiguous().numpy())


def _middle(picture: Any, side: int) -> np.ndarray:
    from PIL import Image

    width, height = picture.size
    short = min(width, height)
    box = ((width - short) / 2, (height - short) / 2, (width + short) / 2, (height + short) / 2)
    return np.asarray(picture.resize((side, side), Image.Resampling.BICUBIC, box=box))


def middle_of(image: Tensor, how: None, side: int) -> np.ndarray:
    """`middle` with the arguments that a `Stream` of files passes."""
    return middle(image, side)


def finished(recipe: ViewPipeline, cropped: Tensor, sample: Tensor, key: Key, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Finish B images' crops, as `crops` returns them, to V views; by kernels on a GPU."""
    sides = [recipe.size_of(how) for how in recipe.augmentations]
    channels = len(recipe.mean)
    parts = cropped.split([channels * side * side for side in sides], dim=1)
    make = fused if channels == 3 and kernels.usable(cropped) else reference
    hows = zip(parts, recipe.augmentations, strict=True)
    return tuple(make(how, recipe, part, sample, key, dtype, view=view) for view, (part, how) in enumerate(hows))


def reference(
    how: Augmentation, recipe: ViewPipeline, part: Tensor, sample: Tensor, key: Key, dtype: torch.dtype, *, view: int
) -> Tensor:
    """One view, operation by operation."""
    memory = torch.channels_last if part.is_cuda else torch.contiguous_format
    side = recipe.size_of(how)
    d = draw(how, (side, side), sample, key, view=view)
    x = part.reshape(-1, len(recipe.mean), side, side).float() / 255
    x = torch.where(d.flip[:, None, None, None], x.flip(3), x)
    return coloured(x, d, how, recipe).to(dtype, memory_format=memory)


def fused(
    how: Augmentation, recipe: ViewPipeline, part: Tensor, sample: Tensor, key: Key, dtype: torch.dtype, *, view: int
) -> Tensor:
    """One view by kernels. It does not wait for the device, except for RandAugment of large images."""
    from hypersphere.kernels.crops import finish_crops
    from hypersphere.views.kernel_style import kernel_style

    side = recipe.size_of(how)
    style, kernel_dtype = kernel_style(how, recipe, side, side, dtype)
    shape = (len(part), 3, side, side)
    out = torch.empty(shape, dtype=kernel_dtype, device=part.device, memory_format=torch.channels_last)
    finish_crops(part, sample, style, out, key, view=view)
    if how.operations:
        out = late_changes(out, draw_late(how, sample, key, view=view), how, recipe)
    return out.to(dtype, memory_format=torch.channels_last)
