"""Augmented views of images, batched, with random parameters for each image.

`pipeline` says which augmentations a dataset gets and applies them with torch, `dispatch` chooses between it and a
kernel, and `crops` splits the work between data workers (crops) and the GPU (the rest).

May import: errors, kernels, util.
"""

from hypersphere.views.dispatch import Views
from hypersphere.views.pipeline import (
    PIPELINES,
    POLICIES,
    Augmentation,
    ViewPipeline,
    evaluation_view,
    folder_pipeline,
    with_small_crops,
    with_views,
)

__all__ = [
    "PIPELINES",
    "POLICIES",
    "Augmentation",
    "ViewPipeline",
    "Views",
    "evaluation_view",
    "folder_pipeline",
    "with_small_crops",
    "with_views",
]
