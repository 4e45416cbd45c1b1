"""Augmented views of images, batched, with random parameters for each image.

`pipeline` says which augmentations a dataset gets and applies them with torch, `dispatch` chooses between it and a
kernel, and `crops` splits the work between data workers (crops) and the GPU (the rest).

May import `kernels` and `util`.
"""

from hypersphere.views.dispatch import Views
from hypersphere.views.pipeline import (
    POLICIES,
    RECIPES,
    Augmentation,
    Recipe,
    evaluation_view,
    folder_recipe,
    with_small_crops,
    with_views,
)

__all__ = [
    "POLICIES",
    "RECIPES",
    "Augmentation",
    "Recipe",
    "Views",
    "evaluation_view",
    "folder_recipe",
    "with_small_crops",
    "with_views",
]
