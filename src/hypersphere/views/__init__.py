"""Views of images: what to draw, what to do with it, in which order by data set."""

from hypersphere.views.dispatch import Views
from hypersphere.views.recipes import (
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
