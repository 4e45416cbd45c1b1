"""Build the parts of a run from its config: method, views, regularizers, optimizer, trainer."""

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import UninitializedParameter

from hypersphere.config import Config
from hypersphere.data import Dataset, Images
from hypersphere.data.loader import center_view
from hypersphere.distributed.collectives import world_size
from hypersphere.errors import UserError, first_line
from hypersphere.evaluate.features import encode, frozen
from hypersphere.losses import SigregLoss, koleo, spherical_mmd, variance_covariance
from hypersphere.methods import Batch, Method, MultiCropOptions, ProjectionLoss, method_class
from hypersphere.methods.base import HEADS
from hypersphere.methods.options import accepted_parameters
from hypersphere.methods.recipes import PHOTOGRAPH
from hypersphere.nn import build_encoder, features_of
from hypersphere.nn.patches import multiply_patches
from hypersphere.nn.transformers import is_transformer, patch_projection
from hypersphere.optim import build_optimizer, scaled
from hypersphere.regularize import EnergyRegularizer, OrthogonalityRegularizer, WeightRegularizer, has_neurons
from hypersphere.runs.initial_weights import load_initial_weights
from hypersphere.runs.machine import Execution
from hypersphere.sphere.measures import uniformity_by_rows
from hypersphere.train import Plan, Trainer
from hypersphere.util.launcher import launched
from hypersphere.util.references import import_subclass
from hypersphere.views import POLICIES, ViewPipeline, Views, with_small_crops

COMPILED_FROM = 5000  # updates of a run that torch.compile makes shorter: compiling takes as long as 2,500 of a ViT-S


def build_method(config: Config, channels: int, classes: int = 2, *, begin: bool = False) -> Method:
    """Build the method of a config with its encoder.

    Args:
        config: Config of the run.
        channels: Channels of the images.
        classes: Number of classes, for methods that learn labels. Not needed if only the encoder is wanted.
        begin: Whether a run starts, so that the encoder gets its initial weights. A checkpoint has them all.

    Raises:
        UserError: If the encoder or the method cannot be built with these options.
    """
    views = view_pipeline(config)
    encoder = build_encoder(
        config.encoder,
        channels=channels,
        stem=config.stem,
        norm=config.norm,
        dimensions=config.dimensions,
        size=views.size,
    )
    if any(isinstance(weight, UninitializedParameter) for weight in encoder.parameters()):
        raise UserError(f"`encoder` {config.encoder} is lazy: run a batch through it in the function that builds it")
    if begin:
        load_initial_weights(encoder, config, channels)
    if config.freeze_patches:
        _freeze_patches(encoder, config)
    kind = method_class(config.method)
    provided = {name: getattr(config, name) for name in ("norm", "seed", "epochs")}
    provided |= {"classes": classes, "input_shape": (channels, *[views.size] * 2)}
    accepted = accepted_parameters(kind)
    options = {name: value for name, value in provided.items() if name in accepted}
    options |= _own_options(config, kind)
    if "teacher" in options:
        from hypersphere.runs.teachers import teacher_options  # which needs the views

        options |= teacher_options(config)
    method = _construct(kind, config.method, {**options, "encoder": encoder, "features": features_of(encoder)})
    method.projection_losses = projection_losses_of(config)
    for further in method.projection_losses:
        if isinstance(further.of, nn.Module):  # its state is saved with the method's
            method.add_module(further.name, further.of)
    return method


def _freeze_patches(encoder: nn.Module, config: Config) -> None:
    projection = patch_projection(encoder)
    if projection is None:
        raise UserError(f"`freeze_patches` needs an encoder that cuts images into patches, not {config.encoder}")
    projection.requires_grad_(False)


def _construct(kind: type[Method], name: str, options: dict[str, Any]) -> Method:
    try:
        inspect.signature(kind).bind(**options)
    except TypeError as error:
        raise UserError(f"{name}: its __init__ does not fit its options ({error})") from None
    try:
        method = kind(**options)
    except AttributeError as error:
        if "Module.__init__" not in str(error):
            raise
        raise UserError(f"{name}: its __init__ must call super().__init__() first") from None
    if not isinstance(getattr(method, "encoder", None), nn.Module):
        raise UserError(f"{name}: its __init__ must set self.encoder to the network that it gets")
    return method


def _own_options(config: Config, kind: type[Method]) -> dict[str, Any]:
    """Return the options that a method declares."""
    parameters = inspect.signature(kind).parameters
    of_views = {declared.name for declared in dataclasses.fields(MultiCropOptions)}
    shared = {declared.name for declared in dataclasses.fields(Config)}
    options = {name: value for name, value in vars(config).items() if name not in of_views | shared}
    for name, value in options.items():
        if value is None and name in parameters and parameters[name].default is inspect.Parameter.empty:
            raise UserError(f"{config.method} has no default for its option `{name}`: pass a value")
    return options


def projection_losses_of(config: Config) -> tuple[ProjectionLoss, ...]:
    """Return the losses of the projections with a positive weight."""
    losses: dict[str, tuple[float, Callable[[Tensor], Tensor]]] = {
        "uniformity": (config.uniformity, partial(uniformity_by_rows, t=config.uniformity_t)),
        "variance_covariance": (config.variance_covariance, variance_covariance),
        "koleo": (config.koleo, koleo),
        "spherical_mmd": (config.spherical_mmd, spherical_mmd),
        "sigreg": (config.sigreg, SigregLoss(seed=config.seed)),
    }
    return tuple(ProjectionLoss(name, weight, loss) for name, (weight, loss) in losses.items() if weight)


def regularizes_weights(config: Config) -> bool:
    """Return whether a config has a regularizer of the networks' weights."""
    return bool(config.energy or config.orthogonality or config.regularizer)


def regularizer_of(config: Config, method: Method) -> Callable[[], Tensor] | None:
    """Return a function that sums the regularizers of the networks' weights; None if there are none."""
    try:
        regularizers = list(_regularizers(config, method))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"`energy_layers`: {error}") from None
    if len(regularizers) < 2:
        return next(iter(regularizers), None)
    return lambda: torch.stack([regularizer() for regularizer in regularizers]).sum()


def regularized_parts(config: Config, method: Method) -> list[str]:
    """Return the names of the networks that are regularized.

    These are `energy_layers` without a predictor that is switched off. "heads" stands for the heads with neurons, or
    for the encoder if there are none.
    """
    heads = [name for name, part in method.named_children() if name != "encoder" and has_neurons(part)]
    meant = {} if hasattr(method, HEADS) else {HEADS: heads or ["encoder"]}
    parts = [part for name in config.energy_layers for part in meant.get(name, [name])]
    return [part for part in parts if not isinstance(getattr(method, part, None), nn.Identity)]


def _regularizers(config: Config, method: Method) -> Iterator[WeightRegularizer]:
    where = regularized_parts(config, method)
    if config.energy:
        yield EnergyRegularizer(
            method,
            s=config.energy_s,
            metric=config.energy_metric,
            weight=config.energy,
            half_space=config.energy_half_space,
            where=where,
            dimensions=config.energy_projection,
            seed=config.seed,
        )
    if config.orthogonality:
        yield OrthogonalityRegularizer(
            method, config.orthogonality_kind, weight=config.orthogonality, where=where, seed=config.seed
        )
    if config.regularizer is not None:
        duty = "measure, which computes one number for each matrix of neurons"
        kind = import_subclass(config.regularizer, WeightRegularizer, duty, {"weight", "where"})  # type: ignore[type-abstract]
        own = kind(method, weight=config.regularizer_weight, where=where)
        _check_regularizer(own)
        yield own


def _check_regularizer(regularizer: WeightRegularizer) -> None:
    """Raise a `UserError` if a regularizer of the user's own fails, before anything is written."""
    try:
        with torch.enable_grad():
            regularizer()
    except (TypeError, ValueError) as error:
        raise UserError(f"`regularizer`: {error}") from None


def view_pipeline(config: Config) -> ViewPipeline:
    """Return how the views of a run are made: sizes, augmentations, mean and standard deviation."""
    views = Dataset.resolve(config).pipeline(config.size)
    if config.policy != "data":
        views = dataclasses.replace(views, augmentations=(POLICIES[config.policy],) * 2)
    if config.randaugment:
        more = [dataclasses.replace(a, operations=config.randaugment) for a in views.augmentations]
        views = dataclasses.replace(views, augmentations=tuple(more))
    if config.crop_min is not None:
        crops = [dataclasses.replace(a, crop=(config.crop_min, a.crop[1])) for a in views.augmentations]
        views = dataclasses.replace(views, augmentations=tuple(crops))
    if isinstance(config, MultiCropOptions):
        views = with_small_crops(views, config.small_crops, config.small_side, config.small_area)
    return views


def plan_of(config: Config, images: int) -> Plan:
    """Return the plan of a run: its steps, and when it logs and saves.

    Raises:
        UserError: If the batch is larger than the training set, or cannot be split equally among the processes.
    """
    if config.batch > images:
        raise UserError(f"`batch` {config.batch} is more than the {images} training images of {config.data}")
    for name, images_at_once in (("batch", config.batch), ("micro_batch", config.micro_batch)):
        if images_at_once is not None and images_at_once % world_size():
            less = images_at_once - images_at_once % world_size()
            choices = " or ".join(str(n) for n in (less, less + world_size()) if n)
            raise UserError(
                f"`{name}` {images_at_once} cannot be split equally among {world_size()} processes: choose {choices}"
            )
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
    """Return the optimizer of a run."""
    groups = method.parameter_groups()
    if not isinstance(groups, list | tuple) or not all(
        isinstance(group, dict) and "params" in group for group in groups
    ):
        raise UserError(f"parameter_groups of {type(method).__name__} must return a list of dicts, each with params")
    return build_optimizer(
        config.optimizer,
        groups,
        weight_decay=config.weight_decay,
        weight_decay_end=config.weight_decay_end,
        momentum=config.momentum,
        trust=config.trust,
        peak=scaled(config.lr, config.batch),
        clip=config.clip,
    )


def trainer_of(config: Config, method: Method, how: Execution, updates: int = 0) -> Trainer:
    """Return the trainer of a run with so many updates: the method with its optimizer and regularizers."""
    if how.kernels:
        multiply_patches(method)
    return Trainer(
        method,
        optimizer_of(config, method),
        regularizer_of(config, method),
        how.device,
        how.precision,
        capture=how.graph,
        compile=how.compile or _pays_to_compile(config, method, how, updates),
    )


def _pays_to_compile(config: Config, method: Method, how: Execution, updates: int) -> bool:
    """Whether torch.compile makes a run shorter: a long one of a library's transformer on photographs.

    There are no kernels for it here, and its code is known to compile.
    """
    free = config.compile == "auto" and how.kernels and launched() == 1
    slow = view_pipeline(config).size > PHOTOGRAPH and config.encoder.startswith(("timm/", "torchvision/"))
    return free and slow and updates >= COMPILED_FROM and is_transformer(method.encoder)


def trial_update(config: Config, method: Method, how: Execution, images: Images, count: int = 16) -> Callable[[], None]:
    """Return a function that makes a step with `count` images on a copy of the networks."""
    twin = trainer_of(config, copy.deepcopy(method), dataclasses.replace(how, compile=False))
    twin.method.start_trial(len(images))
    views, zero = Views(view_pipeline(config), config.seed), torch.zeros((), device=how.device)
    sample = torch.arange(count, device=how.device) % len(images)

    def update() -> None:
        made = views.training(images.pixels, sample, 0, twin.input_type)
        twin.update([Batch(made, sample, images.labels[sample])], zero, zero)

    return update


def precompile_update(config: Config, method: Method, how: Execution, images: Images) -> None:
    """Compile the kernels of a step."""
    from hypersphere.kernels.precompiling import precompile

    update = trial_update(config, method, how, images, min(16, len(images)))
    with torch.backends.cudnn.flags(enabled=True, benchmark=False):
        precompile(update, how.device)


def try_encoder(config: Config, method: Method, images: Images) -> None:
    """Check that the encoder accepts these images, and views and patches of them, before anything is written.

    Raises:
        UserError: If it does not, if it changes its input in place, or if its output has another width.
    """
    views = view_pipeline(config)
    whole = center_view(views)(images.pixels[:2])
    promised = (len(whole), features_of(method.encoder))
    sides = method.sides([views.size_of(how) for how in views.augmentations])
    for side in sorted({views.size, *sides}, reverse=True):
        try:
            with frozen(method.encoder):
                seen = whole[:, :, :side, :side].clone()
                found = tuple(encode(method.encoder, seen).shape)
        except (RuntimeError, ValueError, AssertionError, AttributeError, TypeError) as error:
            shape = " × ".join(map(str, (whole.shape[1], side, side)))
            images_seen = f"the {shape} images of {config.method} on {config.data}"
            refused = f"`encoder` {config.encoder} does not accept {images_seen} ({first_line(error)})"
            raise UserError(f"{refused}{_other_size(config, method, side)}") from None
        if not seen.equal(whole[:, :, :side, :side]):
            raise UserError(
                f"`encoder` {config.encoder} changes its input in place: copy it first (x = 2 * x, not x *= 2)"
            )
        if found != promised:
            raise UserError(
                f"`encoder` {config.encoder} returned the shape {found}; its num_features promises {promised}"
            )


def _other_size(config: Config, method: Method, refused: int) -> str:
    """What to change if an encoder refuses a size."""
    made_for = getattr(method.encoder, "input_size", None)
    if refused != view_pipeline(config).size:
        small = "pass `small_crops` 0, or " if getattr(config, "small_crops", 0) else ""
        return f": {small}choose an encoder that accepts images of several sizes"
    return f": pass `size` {made_for}" if made_for not in (None, refused) else ""
