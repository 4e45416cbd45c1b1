"""What a config means: the pieces of a run."""

import ast
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
from hypersphere.distributed.collectives import size
from hypersphere.errors import UserError, first_line
from hypersphere.evaluate.features import encode, frozen
from hypersphere.methods import METHODS, Batch, Method, Spreading, method_of
from hypersphere.nn import build_encoder, features_of
from hypersphere.optim import build_optimizer, scaled
from hypersphere.presets import HEADS, OF_METHODS
from hypersphere.regularize import EnergyRegularizer, OrthogonalityRegularizer, WeightRegularizer, has_neurons
from hypersphere.runs.initial import start_from
from hypersphere.runs.machine import Execution
from hypersphere.sphere import koleo, uniformity, variance_covariance
from hypersphere.sphere.spread import Sketching
from hypersphere.train import Plan, Trainer
from hypersphere.util.written import class_at
from hypersphere.views import POLICIES, Recipe, Views, with_small_crops

GIVEN = OF_METHODS | {"seed", "epochs"}  # fields that a method gets where it names them


def build_method(config: Config, channels: int, classes: int = 2, *, begin: bool = False) -> Method:
    """A method takes from the config the options that it names. `classes` are those of the labels, for methods that
    learn them; who wants the encoder alone need not know how many there are. To `begin` a run, the encoder starts from
    what the config says, and copies of it do; a checkpoint has it all."""
    encoder = build_encoder(
        config.encoder, channels=channels, stem=config.stem, norm=config.norm, dimensions=config.dimensions
    )
    if any(isinstance(weight, UninitializedParameter) for weight in encoder.parameters()):
        raise UserError(f"`encoder` {config.encoder} is lazy: run a batch through it where it is made")
    if begin:
        start_from(encoder, config, channels)
    kind = method_of(config.method)
    if config.small_crops and not kind.takes_small_crops:
        taking = ", ".join(name for name, method in METHODS.items() if method.takes_small_crops)
        raise UserError(f"`small_crops` must be 0 with {config.method}: they are for {taking}")
    known = {name: getattr(config, name) for name in GIVEN}
    known |= {"classes": classes, "input_shape": (channels, *[view_recipe(config).size] * 2)}
    options = {name: known[name] for name in inspect.signature(kind.__init__).parameters if name in known}
    options |= {**extra_options(config, kind), "encoder": encoder, "features": features_of(encoder)}
    try:
        inspect.signature(kind).bind(**options)
    except TypeError as error:
        raise UserError(f"{config.method}: its __init__ needs more than is known ({error}): see `extra`") from None
    try:
        method = kind(**options)
    except AttributeError as error:
        if "Module.__init__" not in str(error):
            raise
        raise UserError(f"{config.method}: its __init__ must call super().__init__() first") from None
    if not isinstance(getattr(method, "encoder", None), nn.Module):
        raise UserError(f"{config.method}: its __init__ must keep the network that it is given as self.encoder")
    method.spreading = spreadings_of(config)
    for spreading in method.spreading:
        if isinstance(spreading.of, nn.Module):  # its state is saved with the method's
            method.add_module(spreading.name, spreading.of)
    return method


def extra_options(config: Config, kind: type[Method]) -> dict[str, Any]:
    """What is said of options that only the method knows: numbers, words, True, None, … as Python writes them."""
    known = GIVEN | {"self", "encoder", "features", "classes", "input_shape"}
    own = [name for name in inspect.signature(kind.__init__).parameters if name not in known]
    found: dict[str, Any] = {}
    for word in config.extra:
        name, given, value = word.partition("=")
        if not given or name not in own:
            there = f"there are {', '.join(own)}" if own else "it has none"
            raise UserError(f"`extra` {word} must be name=value of an option that {config.title} alone has ({there})")
        if name in found:
            raise UserError(f"`extra` says {name} twice")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = {"true": True, "false": False}.get(value.lower(), value)
    return found


def spreadings_of(config: Config) -> tuple[Spreading, ...]:
    """The losses of the projections that a config weighs."""
    losses: dict[str, tuple[float, Callable[[Tensor], Tensor]]] = {
        "uniformity": (config.uniformity, partial(uniformity, t=config.uniformity_t)),
        "variance_covariance": (config.variance_covariance, variance_covariance),
        "koleo": (config.koleo, koleo),
        "sigreg": (config.sigreg, Sketching(seed=config.seed)),
    }
    return tuple(Spreading(name, weight, loss) for name, (weight, loss) in losses.items() if weight)


def regularizes_weights(config: Config) -> bool:
    return bool(config.energy or config.orthogonality or config.regularizer)


def regularizer_of(config: Config, method: Method) -> Callable[[], Tensor] | None:
    """The sum of those of the weights that a config weighs."""
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
    """As `energy_layers` has them, less a predictor that is left out; in the place of "heads" those with neurons, or
    the encoder where there are none."""
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
        duty = "measure, which makes one number of each matrix of neurons"
        kind = class_at(config.regularizer, WeightRegularizer, duty, {"weight", "where"})  # type: ignore[type-abstract]
        own = kind(method, weight=config.regularizer_weight, where=where)
        _try(own)
        yield own


def _try(regularizer: WeightRegularizer) -> None:
    """Is it right? Before anything is written."""
    try:
        with torch.enable_grad():
            regularizer()
    except (TypeError, ValueError) as error:
        raise UserError(f"`regularizer`: {error}") from None


def view_recipe(config: Config) -> Recipe:
    views = Dataset.resolve(config).pipeline(config.size)
    if config.policy != "data":
        views = dataclasses.replace(views, augmentations=(POLICIES[config.policy],) * 2)
    if config.randaugment:
        more = [dataclasses.replace(a, operations=config.randaugment) for a in views.augmentations]
        views = dataclasses.replace(views, augmentations=tuple(more))
    if config.crop_min is not None:
        crops = [dataclasses.replace(a, crop=(config.crop_min, a.crop[1])) for a in views.augmentations]
        views = dataclasses.replace(views, augmentations=tuple(crops))
    return with_small_crops(views, config.small_crops, config.small_side, config.small_area)


def plan_of(config: Config, images: int) -> Plan:
    if config.batch > images:
        raise UserError(f"`batch` {config.batch} is more than the {images} training images of {config.data}")
    for name, images_at_once in (("batch", config.batch), ("micro_batch", config.micro_batch)):
        if images_at_once is not None and images_at_once % size():
            less = images_at_once - images_at_once % size()
            fitting = " or ".join(str(n) for n in (less, less + size()) if n)
            raise UserError(
                f"`{name}` {images_at_once} cannot be shared out equally among {size()} processes: say {fitting}"
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
    groups = method.parameter_groups()
    if not isinstance(groups, list | tuple) or not all(
        isinstance(group, dict) and "params" in group for group in groups
    ):
        raise UserError(f"parameter_groups of {type(method).__name__} must give a list of dicts, each with params")
    return build_optimizer(
        config.optimizer,
        groups,
        weight_decay=config.weight_decay,
        weight_decay_end=config.weight_decay_end,
        momentum=config.momentum,
        trust=config.trust,
        peak=scaled(config.lr, config.batch),
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


def try_encoder(config: Config, method: Method, images: Images) -> None:
    """Does the encoder take these images, and views and parts of them of any size? Before anything is written."""
    views = view_recipe(config)
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
            told = f"the {shape} images that {config.method} shows it of {config.data}"
            raise UserError(f"`encoder` {config.encoder} does not take {told} ({first_line(error)})") from None
        if not seen.equal(whole[:, :, :side, :side]):
            raise UserError(
                f"`encoder` {config.encoder} changes its input in place: copy it first (x = 2 * x, not x *= 2)"
            )
        if found != promised:
            raise UserError(
                f"`encoder` {config.encoder} made {found} of {len(whole)} images, not {promised} as num_features says"
            )
