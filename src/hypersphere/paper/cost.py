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
    kept = ("data", "size", "encoder", "stem", "norm", "dimensions", "hidden", "projection", "method", "crop_min")
    return Config(**{name: getattr(config, name) for name in kept})


@cache
def _operations(config: Config) -> float:
    """Of one image's part in an update, without computing anything."""
    views = view_recipe(config)
    with torch.device("meta"):
        method = build_method(config, channels=len(views.mean))
        pair = tuple(torch.empty(2, len(views.mean), views.size, views.size) for _ in views.augmentations)
        counter = FlopCounterMode(display=False)
        with counter:
            method(Batch(pair, torch.arange(2), None)).loss.backward()
    return counter.get_total_flops() / 2
