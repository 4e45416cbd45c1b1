"""Names of classes that are called by their WordNet id, such as n01440764."""

import re
from collections.abc import Sequence

from hypersphere.data.imagenette import CLASSES

IMAGENET_CLASSES = 1000


def class_names(classes: Sequence[str]) -> tuple[str, ...]:
    """Names that people read: of a WordNet id the name of its class in ImageNet, if it is known; of others their own.

    Args:
        classes: The classes of a dataset, in order.

    Returns:
        As many names.

    Example:
        >>> from hypersphere.data.class_names import class_names
        >>> class_names(("n01440764", "tulip"))
        ('tench', 'tulip')
    """
    ids = [name for name in classes if re.fullmatch(r"n\d{8}", name)]
    known = {} if not ids else _imagenet(ids) if len(ids) == IMAGENET_CLASSES else CLASSES
    return tuple(known.get(name, name) for name in classes)


def _imagenet(ids: Sequence[str]) -> dict[str, str]:
    """All classes of ImageNet, whose names torchvision has in the order of their ids."""
    from torchvision.models._meta import _IMAGENET_CATEGORIES

    return dict(zip(sorted(ids), _IMAGENET_CATEGORIES, strict=True))
