"""Options by dataset, and by what is found in a folder of images."""

import math
from typing import Any

# photographs; the learning rate is BYOL's for 300 epochs of ImageNet
_PHOTOGRAPHS: dict[str, Any] = {
    "encoder": "torchvision/resnet50",
    "stem": "imagenet",
    "size": 224,
    "batch": 512,
    "lr": 0.3,
}

DATA: dict[str, dict[str, Any]] = {
    "cifar10": {},
    "cifar100": {},
    # the paper changes the stem "for the CIFAR datasets" only
    "stl10": {"stem": "imagenet", "epochs": 1000, "lr": 0.45},
    "imagenet": _PHOTOGRAPHS,
    "imagenette": _PHOTOGRAPHS,
    "imagenette-160": {**_PHOTOGRAPHS, "size": 128},
    "imagenette-full": _PHOTOGRAPHS,
    "digits": {
        "encoder": "hypersphere/digits",
        "epochs": 80,
        "batch": 128,
        "optimizer": "adamw",
        "lr": 0.008,
        "warmup": None,
        "weight_decay": 0.05,
        "knn_every": 20,
    },
}
"""Options of a run by dataset.

`recipe` joins them with the recipes of the method. Options in `recipes["default"]` of the method win over these, except
on digits. Those in `recipes[NAME]` always win.
"""


def data_options(data: str) -> dict[str, Any]:
    """Return the options of a dataset by name; none for other images."""
    return DATA.get(data, {})


SIZES = (32, 64, 96, 128, 160, 224)  # of the encoder's input, for images of any size


def folder_options(images: int, side: int, size: int | None = None) -> dict[str, Any]:
    """Return the options for images of the user's own.

    Args:
        images: Number of training images.
        side: Median length of their shorter sides, in pixels.
        size: Side of the encoder's input, if it is given.
    """
    size = size or max([size for size in SIZES if size <= 1.15 * side], default=SIZES[0])
    small = size <= 64
    batch = 2 ** max(3, min(9, int(math.log2(images / 4)))) if images >= 32 else max(2, images // 2)
    return {
        "size": size,
        "encoder": "torchvision/resnet50" if size >= 160 and images >= 10_000 else "torchvision/resnet18",
        "stem": "cifar" if small else "imagenet",
        "batch": batch,
        "epochs": 300 if images < 50_000 else 200 if images < 500_000 else 100,
        "lr": 1.5 if small else 0.3,
    }
