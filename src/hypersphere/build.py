"""What a config means: the pieces of a run."""

import copy
import dataclasses
import inspect

import torch

from hypersphere.config import Config
from hypersphere.data import SOURCES, Images, balanced
from hypersphere.diagnostics import EnergyMonitor, SpreadMonitor
from hypersphere.errors import UserError
from hypersphere.evaluate import KnnMonitor, centre, extract
from hypersphere.machine import Execution
from hypersphere.methods import METHODS, Batch, Method
from hypersphere.nn import build_encoder, features_of
from hypersphere.optim import build_optimizer, scaled
from hypersphere.regularize import EnergyRegularizer
from hypersphere.sets import in_files, voting_of
from hypersphere.train import Monitor, Plan, Trainer
from hypersphere.views import RECIPES, Recipe, Views, folder_recipe


def build_method(config: Config, channels: int) -> Method:
    """A method takes from the config the options that it names."""
    encoder = build_encoder(
        config.encoder, channels=channels, stem=config.stem, norm=config.norm, dimensions=config.dimensions
    )
    kind = METHODS[config.method]
    options = {
        name: getattr(config, name) for name in inspect.signature(kind.__init__).parameters if hasattr(config, name)
    }
    return kind(**{**options, "encoder": encoder, "features": features_of(encoder)})


def regularizer_of(config: Config, method: Method) -> EnergyRegularizer | None:
    if config.energy == 0:
        return None
    try:
        return EnergyRegularizer(
            method,
            s=config.energy_s,
            metric=config.energy_metric,
            weight=config.energy,
            half_space=config.energy_half_space,
            where=config.energy_layers,
        )
    except ValueError as error:
        raise UserError(f"`energy_layers`: {error}") from None


def view_recipe(config: Config) -> Recipe:
    views = folder_recipe(config.size or 224) if in_files(config) else RECIPES[config.data]
    if config.crop_min is None:
        return views
    crops = [dataclasses.replace(a, crop=(config.crop_min, a.crop[1])) for a in views.augmentations]
    return dataclasses.replace(views, augmentations=tuple(crops))


def plan_of(config: Config, images: int) -> Plan:
    if config.batch > images:
        raise UserError(f"`batch` {config.batch} is more than the {images} training images of {config.data}")
    return Plan(
        images=images,
        epochs=config.epochs,
        batch=config.batch,
        micro_batch=config.micro_batch or config.batch,
        lr=scaled(config.lr, config.batch),
        warmup_epochs=min(10, config.epochs // 10) if config.warmup is None else config.warmup,
        seed=config.seed,
        log_every=config.log_every,
        save_every=config.save_every,
    )


def optimizer_of(config: Config, method: Method) -> torch.optim.Optimizer:
    return build_optimizer(
        config.optimizer,
        method.parameter_groups(),
        weight_decay=config.weight_decay,
        momentum=config.momentum,
        trust=config.trust,
    )


def trainer_of(config: Config, method: Method, how: Execution) -> Trainer:
    return Trainer(
        method,
        optimizer_of(config, method),
        regularizer_of(config, method),
        how.device,
        how.precision,
        capture=how.graph,
        compile=how.compile,
    )


def rehearse_update(config: Config, method: Method, how: Execution, images: Images) -> None:
    """Compile the kernels of an update, going through one with few images and copies of the networks."""
    from hypersphere.kernels.rehearsal import rehearse

    twin = trainer_of(config, copy.deepcopy(method), dataclasses.replace(how, compile=False))
    views, zero = Views(view_recipe(config), config.seed), torch.zeros((), device=how.device)
    sample = torch.arange(min(16, len(images)), device=how.device)

    def update() -> None:
        made = views.training(images.pixels, sample, 0, twin.input_type)
        twin.update([Batch(made, sample, images.labels[sample])], zero, zero)

    with torch.backends.cudnn.flags(enabled=True, benchmark=False):
        rehearse(update, how.device)


def monitors_of(config: Config, method: Method, learnt: Images, held_out: Images, how: Execution) -> list[Monitor]:
    """k-NN of the validation images, energies by layer and how features vary; of those images too where a run learns
    from them: the test set is for the final number."""
    if config.knn_every == 0:
        return []
    views, known = view_recipe(config), learnt.labelled
    if config.holdout == "test":
        labels = known.labels.cpu()
        per_class = (
            SOURCES[config.data].validation_per_class if config.data in SOURCES else int(labels.bincount().min()) // 5
        )
        rest, some = (part.to(known.labels.device) for part in balanced(labels, per_class))
        known, held_out = known[rest], known[some]
    knn = KnnMonitor(config.knn_every, known, held_out, views, *voting_of(config.data), how.precision)
    fixed = centre(views)(held_out.pixels[:1024]).contiguous(memory_format=how.layout)
    parts = {name: part for name, part in method.named_children() if any(p.requires_grad for p in part.parameters())}
    energies = EnergyMonitor(config.knn_every, fixed, parts, how.precision)
    sample = torch.arange(len(fixed), device=how.device)
    one, other, *_ = Views(views, config.seed).training(held_out.pixels, sample, 0)
    spread = SpreadMonitor(config.knn_every, (one, other), how.precision)
    return [energies, spread, *[knn] * (len(held_out.classes) > 1)]


def try_encoder(config: Config, method: Method, images: Images) -> None:
    """Does the encoder take these images? Before anything is written."""
    try:
        extract(method.encoder, images.pixels[:2], centre(view_recipe(config)))
    except RuntimeError as error:
        shape = " × ".join(map(str, images.pixels.shape[1:]))
        reason = str(error).splitlines()[0]
        raise UserError(
            f"`encoder` {config.encoder} does not take the {shape} images of {config.data} ({reason})"
        ) from None
