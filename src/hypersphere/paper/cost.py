"""Expected duration of runs on this machine, from their operations and from finished runs."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from hypersphere.config import Config
from hypersphere.methods import Batch
from hypersphere.runs.build import build_method, view_pipeline
from hypersphere.runs.results import Result

SHARE = 0.4  # share of the matmul rate that training reaches (see `hypersphere bench`)
START = 30.0  # seconds before the first update and after the last
# Training BYOL on an image takes eight times as long as a forward pass of the encoder. Costs in epochs of BYOL:
PROBE_EPOCHS = 80 / 8  # the linear probe
FEATURE_EPOCHS = 0.5  # features of all images, and of views of some
DEFAULT_SHARING = 3  # runs on a device, if a result says only that it was shared
# training images of a run that holds out the test set
IMAGES = {
    "digits": 1437,
    "cifar10": 50_000,
    "cifar100": 50_000,
    "stl10": 105_000,
    "imagenette-160": 9_469,
    "imagenet": 1_281_167,
}
_Key = tuple[object, ...]


def seconds(config: Config, tflops: float) -> float:
    """Seconds of pretraining on a machine that computes matrix products at the given TFLOP/s."""
    return _operations(_shape(config)) * IMAGES[config.data] * config.epochs / (SHARE * tflops * 1e12)


@dataclass(frozen=True)
class Prices:
    """Expected seconds of runs on one device.

    Attributes:
        tflops: Its rate of matrix products in TFLOP/s.
        corrections: Measured over counted duration of finished runs, by what they have in common with a run.
        sharing: Runs that share a device, which slows each down by that factor, except for its start.
    """

    tflops: float
    corrections: dict[_Key, float] = field(default_factory=dict)
    sharing: int = 1

    @staticmethod
    def from_results(results: Iterable[Result], device: str, tflops: float) -> "Prices":
        """Learn corrections from results.

        Args:
            results: All results.
            device: Name of the device, as results have it.
            tflops: Its rate of matrix products in TFLOP/s.
        """
        ratios: dict[_Key, list[float]] = {}
        for run in results:
            if run.about.get("device") == device and run.seconds > 0 and run.config.data in IMAGES:
                ratio = run.seconds / _sharing(run) / seconds(run.config, tflops)
                for key in _keys(run.config, "shared" in run.about):
                    ratios.setdefault(key, []).append(ratio)
        return Prices(tflops, {key: statistics.median(of) for key, of in ratios.items()})

    def training(self, config: Config) -> float:
        """Seconds of pretraining."""
        known = (self.corrections.get(key) for shared in (False, True) for key in _keys(config, shared)[:1])
        close = (self.corrections.get(key) for key in _keys(config, False)[1:])
        return seconds(config, self.tflops) * next((ratio for ratio in (*known, *close) if ratio is not None), 1.0)

    def whole(self, config: Config, probes: Sequence[str], trained: bool = True) -> float:
        """Seconds of a whole run, with its start and its evaluation."""
        each = self.training(config) / config.epochs
        epochs = config.epochs * trained + PROBE_EPOCHS * ("linear" in probes) + FEATURE_EPOCHS
        return START + self.sharing * each * epochs


def _sharing(run: Result) -> float:
    """Number of runs that shared the device."""
    runs = run.about.get("shared", "1")
    return float(runs) if runs.isdigit() else DEFAULT_SHARING


def _keys(config: Config, shared: bool) -> list[_Key]:
    """Keys of the corrections that apply to a run, from the most specific to the most general."""
    at_once = config.micro_batch or config.batch
    return [(config.encoder, config.data, at_once, shared), (config.encoder, shared), (shared,)]


def _shape(config: Config) -> Config:
    """The config reduced to what determines the operations per image, so that similar cells are counted once."""
    of_networks = ("encoder", "stem", "dimensions", "hidden", "projection", "layers", "bottleneck", "predictor")
    of_methods = ("method", "prototypes", "queue", "codes_queue", "jigsaw")
    kept = (*of_networks, *of_methods, "data", "size", "crop_min", "small_crops", "small_side")
    known = {name: value for name, value in vars(config).items() if name in kept}
    return Config(**known, norm="none")  # only matrix products are counted


@cache
def _operations(config: Config, images: int = 64) -> float:
    """Floating-point operations per image of an update, counted on the meta device."""
    views = view_pipeline(config)
    with torch.device("meta"):
        method = build_method(config, channels=len(views.mean))
        method.start_trial(images)
        sides = [views.size_of(how) for how in views.augmentations]
        made = tuple(torch.empty(images, len(views.mean), side, side) for side in sides)
        counter = FlopCounterMode(display=False)
        with counter:
            method(Batch(made, torch.arange(images), torch.zeros(images, dtype=torch.long))).loss.backward()
    return counter.get_total_flops() / images
