"""What a run would cost on this machine, by counting its operations."""

from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from hypersphere.build import build_method, view_recipe
from hypersphere.config import Config
from hypersphere.methods import Batch

SHARE = 0.4  # of the matmul rate that training reaches; `hypersphere bench` measures it
# that a run on the test set learns from
IMAGES = {"digits": 1437, "cifar10": 50_000, "cifar100": 50_000, "stl10": 105_000, "imagenet": 1_281_167}


def seconds(config: Config, tflops: float) -> float:
    """Of pretraining, at this machine's rate of matrix products."""
    return _operations(_shape(config)) * IMAGES[config.data] * config.epochs / (SHARE * tflops * 1e12)


def _shape(config: Config) -> Config:
    """What decides how much an image takes, and nothing else: so that alike cells are counted once."""
    of_networks = ("encoder", "stem", "dimensions", "hidden", "projection", "layers", "bottleneck", "predictor")
    of_methods = ("method", "prototypes", "queue", "codes_queue", "jigsaw")
    kept = (*of_networks, *of_methods, "data", "size", "crop_min", "small_crops", "small_side")
    return Config(norm="none", **{name: getattr(config, name) for name in kept})  # only matrix products are counted


@cache
def _operations(config: Config, images: int = 64) -> float:
    """Of one image's part in an update of so many, without computing anything."""
    views = view_recipe(config)
    with torch.device("meta"):
        method = build_method(config, channels=len(views.mean))
        sides = [views.size_of(how) for how in views.augmentations]
        made = tuple(torch.empty(images, len(views.mean), side, side) for side in sides)
        counter = FlopCounterMode(display=False)
        with counter:
            method(Batch(made, torch.arange(images), torch.zeros(images, dtype=torch.long))).loss.backward()
    return counter.get_total_flops() / images
