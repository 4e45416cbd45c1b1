"""Options of a run that concern its views."""

from dataclasses import dataclass
from typing import Literal

from hypersphere.util.option_fields import option


@dataclass(frozen=True)
class ViewOptions:
    """Options of the augmentations."""

    crop_min: float | None = option(None, above=0, most=1)
    """Smallest share of the image's area that a random crop keeps (None: the dataset's recipe)."""
    policy: Literal["data", "moco", "simclr", "infomin"] = "data"
    """Augmentations: those of the dataset's recipe (on photographs, BYOL's), or those of another method on
    photographs."""
    randaugment: int = option(0, least=0, most=64)
    """Operations of RandAugment on each view, after the other augmentations; InfoMin has 2."""
