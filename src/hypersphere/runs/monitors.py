"""What is measured while a run learns."""

import copy
import dataclasses
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from hypersphere.config import Config
from hypersphere.data import Dataset, Images
from hypersphere.data.loader import Loader, center_view, images_that_fit
from hypersphere.data.splits import drawn
from hypersphere.diagnostics import EnergyMonitor, GradientMonitor, Losses, SpreadMonitor
from hypersphere.distributed.collectives import world_size
from hypersphere.evaluate import KnnMonitor
from hypersphere.evaluate.features import put_batch_statistics
from hypersphere.methods import Batch, Method
from hypersphere.nn import skip_synchronization
from hypersphere.regularize import has_neurons
from hypersphere.runs.build import regularizes_weights, trainer_of, view_pipeline
from hypersphere.runs.machine import Execution
from hypersphere.train import Monitor
from hypersphere.views import ViewPipeline, Views

SHOWN = 1024  # images whose energies and views are looked at
DIFFERENTIATED = 256  # training images, at most, for the gradients of loss and regularizer
SCALE = 1024.0  # of the loss in float16, so that its gradients neither vanish nor overflow


def monitors_of(
    config: Config,
    method: Method,
    learnt: Images,
    held_out: Images,
    how: Execution,
    *,
    whole: bool = True,
    start: Callable[[], nn.Module] | None = None,
) -> list[Monitor]:
    """What to measure during training: k-NN accuracy, energies by layer, spread, and gradients of the regularizer.

    A run that holds out the test set is watched on some of its training images: the test set is for the final number.

    Args:
        config: Of the run.
        method: What is trained.
        learnt: Training images in memory.
        held_out: Held-out images in memory.
        how: Device and precision.
        whole: Whether `learnt` are all training images, in their order.
        start: Returns the encoder with which the run began, to measure its k-NN accuracy once, too. None: it is known.
    """
    if config.knn_every == 0:
        return []
    dataset, views, known = Dataset.resolve(config), view_pipeline(config), learnt.labelled
    if config.holdout == "test":
        known, held_out = _watched(dataset, known, learnt)
    if len(held_out) < 2:  # one image has no pair, and nothing to vary with
        return []
    shown = held_out[dataset.some(len(held_out), SHOWN).to(held_out.labels.device)]
    knn: Monitor
    knn = accuracy = KnnMonitor(config.knn_every, known, held_out, views, *dataset.voting, how.precision)
    if start is not None:
        seen = learnt.labelled.loader(views, config.seed, how.device) if config.init is None else None
        knn = KnnSinceStart(accuracy, start, seen)
    parts = {name: part for name, part in method.named_children() if has_neurons(part)}
    energies = EnergyMonitor(config.knn_every, partial(_middles, views, shown, how), parts, how.precision)
    spread = SpreadMonitor(config.knn_every, partial(_pairs, Views(views, config.seed), shown), how.precision)
    votes = len(held_out.classes) > 1 and len(known) > 0 and len(held_out.labelled) > 0
    gradients = _gradients(config, method, learnt, how) if whole or not method.growing else []
    return [energies, spread, *gradients, *[knn] * votes]


class KnnSinceStart:
    """k-NN accuracy, and once that of the encoder with which the run began, as `knn_at_start`.

    Args:
        knn: Measures k-NN accuracy.
        start: Returns the encoder.
        images: Images for its BatchNorm statistics, as `evaluate` uses them for its random encoder. None if it was
            trained before.
    """

    def __init__(self, knn: KnnMonitor, start: Callable[[], nn.Module], images: Loader | None) -> None:
        self.knn, self.every, self.labels = knn, knn.every, knn.labels
        self.start: Callable[[], nn.Module] | None = start
        self.images = images

    def __call__(self, encoder: nn.Module) -> dict[str, float]:
        found = self.knn(encoder)
        if self.start is not None:
            found["knn_at_start"] = self.knn(self._started())["knn"]
            self.start = None
        return found

    def _started(self) -> nn.Module:
        assert self.start is not None
        encoder = self.start()
        if self.images is not None:
            put_batch_statistics(skip_synchronization(encoder), self.images)  # only rank 0 runs monitors
        return encoder


def _gradients(config: Config, method: Method, learnt: Images, how: Execution) -> list[Monitor]:
    """Ratios of the regularizer's gradient to the loss's, if the run regularizes weights.

    None in a job of several processes: only rank 0 runs monitors, and the loss of a method needs all ranks.
    """
    if not regularizes_weights(config) or world_size() > 1:
        return []
    fits = images_that_fit(learnt.pixels, center_view(view_pipeline(config)))
    batch = min(DIFFERENTIATED, config.micro_batch or config.batch, fits, len(learnt))
    if batch < 2:  # BatchNorm cannot learn from one image
        return []
    sample = Dataset.resolve(config).some(len(learnt), batch).to(learnt.labels.device)
    return [GradientMonitor(config.knn_every, partial(_losses, config, method, learnt, sample, how), how.device)]


def _losses(config: Config, method: Method, learnt: Images, sample: Tensor, how: Execution) -> Losses:
    """Loss and regularizer as the trainer computes them, but of a copy, so that buffers of the method do not change."""
    twin = copy.deepcopy(method)
    trainer = trainer_of(config, twin, dataclasses.replace(how, compile=False, graph=False))
    views = Views(view_pipeline(config), config.seed).training(learnt.pixels, sample, 0, trainer.input_type)
    with trainer.autocast:
        loss, _ = trainer.loss_of(Batch(views, sample, learnt.labels[sample]))
    assert trainer.regularizer is not None
    networks = {name: part for name, part in twin.named_children() if any(p.requires_grad for p in part.parameters())}
    scale = SCALE if trainer.scaler.is_enabled() else 1.0
    return Losses(networks, scale * loss, scale * trainer.regularizer())


def _middles(views: ViewPipeline, images: Images, how: Execution) -> Iterator[Tensor]:
    view = center_view(views)
    return (view(images.pixels[some]).contiguous(memory_format=how.layout) for some in _pieces(views, images))


def _pairs(views: Views, images: Images) -> Iterator[tuple[Tensor, ...]]:
    return (views.training(images.pixels, some, 0)[:2] for some in _pieces(views.recipe, images))


def _pieces(views: ViewPipeline, images: Images) -> tuple[Tensor, ...]:
    """Photographs, shown all at once, would fill gigabytes."""
    fits = images_that_fit(images.pixels, center_view(views))
    return torch.arange(len(images), device=images.pixels.device).split(fits)


def _watched(dataset: Dataset, known: Images, learnt: Images) -> tuple[Images, Images]:
    """(the rest, some to look at) of the images that a run learns from."""
    labels = known.labels.cpu()
    if not len(labels):
        _, some = drawn(len(learnt), max(1, len(learnt) // 5))
        return known, learnt[some.to(learnt.labels.device)]
    rest, some = (part.to(known.labels.device) for part in dataset.validation_of(labels))
    return known[rest], known[some]
