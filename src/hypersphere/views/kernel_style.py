"""An augmentation as the kernels take it."""

import math
from dataclasses import replace

import torch

from hypersphere.kernels.colours import Numbers, Style
from hypersphere.views.pipeline import Augmentation, ViewPipeline, whole_box


def kernel_style(
    how: Augmentation, recipe: ViewPipeline, height: int, width: int, dtype: torch.dtype
) -> tuple[Style, torch.dtype]:
    """What a kernel does, and the dtype it writes: all or, if RandAugment follows, the part before it in float32."""
    mean, std, blur = recipe.mean, recipe.std, recipe.blur_kernel if how.blur else 0
    if how.operations:  # `late_changes` does the rest
        how = replace(how, grey=0.0, solarize=0.0, operations=0)
        mean, std, dtype = (0.0,) * len(mean), (1.0,) * len(std), torch.float32
    low, high = (math.log(ratio) for ratio in how.ratio)
    whole_height, whole_width = whole_box(how, height, width)
    same = ("flip", "jitter", "brightness", "contrast", "saturation", "hue", "grey", "blur", "solarize")
    numbers = Numbers(
        area=how.crop[0],
        area_span=how.crop[1] - how.crop[0],
        log_ratio=low,
        log_ratio_span=high - low,
        whole_height=whole_height,
        whole_width=whole_width,
        sigma=how.sigma[0],
        sigma_span=how.sigma[1] - how.sigma[0],
        **{name: getattr(how, name) for name in same},
    )
    return Style(numbers, blur, mean, std), dtype
