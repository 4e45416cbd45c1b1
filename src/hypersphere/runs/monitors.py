"""What is watched while a run learns."""

import copy
import dataclasses
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from hypersphere.config import Config
from hypersphere.data import SOURCES, Images, balanced
from hypersphere.data.sets import in_files, voting_of
from hypersphere.data.splits import drawn, evenly, of_each_class
from hypersphere.diagnostics import EnergyMonitor, GradientMonitor, Losses, SpreadMonitor
from hypersphere.distributed.collectives import size
from hypersphere.evaluate import KnnMonitor, centre
from hypersphere.evaluate.features import images_that_fit
from hypersphere.methods import Batch, Method
from hypersphere.regularize import has_neurons
from hypersphere.runs.build import regularizes_weights, trainer_of, view_recipe
from hypersphere.runs.machine import Execution
from hypersphere.train import Monitor
from hypersphere.views import Recipe, Views

SHOWN = 1024  # images whose energies and views are looked at
DIFFERENTIATED = 256  # training images, at most, for the gradients of loss and regularizer
SCALE = 1024.0  # of the loss in float16, so that its gradients neither vanish nor overflow


def monitors_of(config: Config, method: Method, learnt: Images, held_out: Images, how: Execution) -> list[Monitor]:
    """k-NN of the validation images, energies by layer and how features vary; of those images too where a run learns
    from them: the test set is for the final number. If the run regularizes weights, also how strongly it does."""
    if config.knn_every == 0:
        return []
    views, known = view_recipe(config), learnt.labelled
    if config.holdout == "test":
        known, held_out = _watched(config, known, learnt)
    if len(held_out) < 2:  # one image has no pair, and nothing to vary with
        return []
    shown = held_out[_to_show(config, len(held_out), SHOWN).to(held_out.labels.device)]
    knn = KnnMonitor(config.knn_every, known, held_out, views, *voting_of(config.data), how.precision)
    parts = {name: part for name, part in method.named_children() if has_neurons(part)}
    energies = EnergyMonitor(config.knn_every, partial(_middles, views, shown, how), parts, how.precision)
    spread = SpreadMonitor(config.knn_every, partial(_pairs, Views(views, config.seed), shown), how.precision)
    votes = len(held_out.classes) > 1 and len(known) > 0 and len(held_out.labelled) > 0
    return [energies, spread, *_gradients(config, method, learnt, how), *[knn] * votes]


def _gradients(config: Config, method: Method, learnt: Images, how: Execution) -> list[Monitor]:
    """Ratios of the regularizer's gradient to the loss's, if the run regularizes weights.

    None in a job of several processes: only rank 0 runs monitors, and the loss of a method needs all ranks. None for
    methods with a label for each image (`growing`) if images are files: `learnt` does not say which files it holds.
    """
    if not regularizes_weights(config) or size() > 1 or (method.growing and in_files(config)):
        return []
    fits = images_that_fit(learnt.pixels, centre(view_recipe(config)))
    batch = min(DIFFERENTIATED, config.micro_batch or config.batch, fits, len(learnt))
    if batch < 2:  # BatchNorm cannot learn from one image
        return []
    sample = _to_show(config, len(learnt), batch).to(learnt.labels.device)
    return [GradientMonitor(config.knn_every, partial(_losses, config, method, learnt, sample, how), how.device)]


def _losses(config: Config, method: Method, learnt: Images, sample: Tensor, how: Execution) -> Losses:
    """Loss and regularizer as the trainer computes them, but of a copy, so that buffers of the method do not change."""
    twin = copy.deepcopy(method)
    trainer = trainer_of(config, twin, dataclasses.replace(how, compile=False, graph=False))
    views = Views(view_recipe(config), config.seed).training(learnt.pixels, sample, 0, trainer.input_type)
    with trainer.autocast:
        loss, _ = trainer.loss_of(Batch(views, sample, learnt.labels[sample]))
    assert trainer.regularizer is not None
    networks = {name: part for name, part in twin.named_children() if any(p.requires_grad for p in part.parameters())}
    scale = SCALE if trainer.scaler.is_enabled() else 1.0
    return Losses(networks, scale * loss, scale * trainer.regularizer())


def _middles(views: Recipe, images: Images, how: Execution) -> Iterator[Tensor]:
    return (centre(views)(images.pixels[some]).contiguous(memory_format=how.layout) for some in _pieces(views, images))


def _pairs(views: Views, images: Images) -> Iterator[tuple[Tensor, ...]]:
    return (views.training(images.pixels, some, 0)[:2] for some in _pieces(views.recipe, images))


def _to_show(config: Config, images: int, count: int) -> Tensor:
    """Some of them. Sets by name that fit into memory come in no order; what is in files and arrays is often sorted."""
    return torch.arange(min(count, images)) if config.data in SOURCES else evenly(images, count)


def _pieces(views: Recipe, images: Images) -> tuple[Tensor, ...]:
    """Photographs, shown all at once, would fill gigabytes."""
    return torch.arange(len(images), device=images.pixels.device).split(images_that_fit(images.pixels, centre(views)))


def _watched(config: Config, known: Images, learnt: Images) -> tuple[Images, Images]:
    """Of what a run on the test set learns from: the rest, and some to look at."""
    labels = known.labels.cpu()
    if not len(labels):
        _, some = drawn(len(learnt), max(1, len(learnt) // 5))
        return known, learnt[some.to(learnt.labels.device)]
    counts = labels.bincount()
    if config.data in SOURCES:
        split = balanced(labels, SOURCES[config.data].validation_per_class)
    elif (counts[counts > 0] >= 5).all():
        split = of_each_class(labels, counts // 5)
    else:
        split = drawn(len(labels), max(1, len(labels) // 5))
    rest, some = (part.to(known.labels.device) for part in split)
    return known[rest], known[some]
