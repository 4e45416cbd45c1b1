"""What a run would cost on this machine: its operations are counted, and finished runs tell how fast they go."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from hypersphere.config import Config
from hypersphere.methods import Batch
from hypersphere.runs.build import build_method, view_recipe
from hypersphere.runs.results import Result

SHARE = 0.4  # of the matmul rate that training reaches; `hypersphere bench` measures it
START = 30.0  # seconds until the first update, and for what is written at the end
# An image of BYOL takes eight times as long as one that only passes the encoder forwards, so in epochs of BYOL:
PROBE_EPOCHS = 80 / 8  # of the linear probe
FEATURE_EPOCHS = 0.5  # of the features of all images, and of views of some
WORKERS_BEFORE = 3  # that shared a device where a result says no more than that it was shared
# that a run on the test set learns from
IMAGES = {"digits": 1437, "cifar10": 50_000, "cifar100": 50_000, "stl10": 105_000, "imagenet": 1_281_167}
_Key = tuple[object, ...]


def seconds(config: Config, tflops: float) -> float:
    """Of pretraining, at this machine's rate of matrix products."""
    return _operations(_shape(config)) * IMAGES[config.data] * config.epochs / (SHARE * tflops * 1e12)


@dataclass(frozen=True)
class Prices:
    """Seconds of runs on one device, by counting, corrected by how long finished runs with the same encoder and as many
    images at once took there."""

    tflops: float
    corrections: dict[_Key, float] = field(default_factory=dict)

    @staticmethod
    def from_results(results: Iterable[Result], device: str, tflops: float) -> "Prices":
        """`device`: its name, as results have it."""
        ratios: dict[_Key, list[float]] = {}
        for run in results:
            if run.about.get("device") == device and run.seconds > 0 and run.config.data in IMAGES:
                ratio = run.seconds / _sharing(run) / seconds(run.config, tflops)
                for key in _keys(run.config, "shared" in run.about):
                    ratios.setdefault(key, []).append(ratio)
        return Prices(tflops, {key: statistics.median(of) for key, of in ratios.items()})

    def training(self, config: Config) -> float:
        known = (self.corrections.get(key) for shared in (False, True) for key in _keys(config, shared)[:1])
        close = (self.corrections.get(key) for key in _keys(config, False)[1:])
        return seconds(config, self.tflops) * next((ratio for ratio in (*known, *close) if ratio is not None), 1.0)

    def whole(self, config: Config, probes: Sequence[str], trained: bool = True) -> float:
        """With its start and its evaluation."""
        each = self.training(config) / config.epochs
        return START + each * (config.epochs * trained + PROBE_EPOCHS * ("linear" in probes) + FEATURE_EPOCHS)


def _sharing(run: Result) -> float:
    """How many runs had the device at once."""
    told = run.about.get("shared", "1")
    return float(told) if told.isdigit() else WORKERS_BEFORE


def _keys(config: Config, shared: bool) -> list[_Key]:
    """What a run's speed is known by, from the closest to the widest."""
    at_once = config.micro_batch or config.batch
    return [(config.encoder, config.data, at_once, shared), (config.encoder, shared), (shared,)]


def _shape(config: Config) -> Config:
    """What decides how much an image takes, and nothing else: so that alike cells are counted once."""
    of_networks = ("encoder", "stem", "dimensions", "hidden", "projection", "layers", "bottleneck", "predictor")
    of_methods = ("method", "prototypes", "queue", "codes_queue", "jigsaw")
    kept = (*of_networks, *of_methods, "data", "size", "crop_min", "small_crops", "small_side")
    known = {name: value for name, value in vars(config).items() if name in kept}
    return Config(**known, norm="none")  # only matrix products are counted


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
