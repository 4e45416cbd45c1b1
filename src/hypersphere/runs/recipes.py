"""A method's recipe on whatever data and encoder one names, and which options have no effect on a run."""

import os
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from hypersphere.config import (
    Config,
    coerce_options,
    format_value,
    of_other_optimizer,
    option_names,
    photograph_options,
    recipe,
)
from hypersphere.data import Dataset, DataSpec
from hypersphere.data.resolving import dataset_of
from hypersphere.errors import UserError
from hypersphere.methods import METHODS, method_class
from hypersphere.methods.recipes import parse_name, transformer_recipe
from hypersphere.nn.encoders import sketch, takes_any_channels
from hypersphere.nn.transformers import is_transformer, patch_projection
from hypersphere.presets import SIZES, data_options, folder_options
from hypersphere.runs.initial_weights import initial_channels
from hypersphere.runs.recommend import Recommendation, recommend
from hypersphere.runs.teachers import with_teacher
from hypersphere.util.console import notify, pluralize


def recipe_for(method: str | None = None, data: Any = "cifar10", **options: Any) -> Config:
    """A method's recipe on a dataset; for images of one's own, by what is found there, which is printed.

    Without a method, it is the one that `recommend` finds for these images, with its options.
    """
    options = coerce_options(method, options)  # a mistake is reported before anything is searched
    given = {one.name: options[one.name] for one in fields(DataSpec) if one.name in options}
    dataset = dataset_of(data, DataSpec(**given))
    dataset.check_options()
    hints, suggested, chosen = dataset.recipe_hints(), {}, ""
    if method is None:
        choice = recommended_for(dataset, options.get("size"), options.get("epochs"))
        method, chosen = choice.method, f"chose {choice}"
        options = coerce_options(method, options)
        if _is_usual(options):
            suggested = choice.options
        elif choice.options:
            chosen += "; its options are left out, since they are for another optimizer or encoder"
    elif hints is not None and _is_usual(options):
        chosen = _better_optimizer(method, recommended_for(dataset, options.get("size"), options.get("epochs")))
    if hints is None:
        suggested = _fitting(suggested, recipe(method, dataset.name))
        if chosen:
            notify(chosen + _in_words(suggested, options))
        return _for_encoder(recipe(method, dataset.name, **{**suggested, **options}), options)
    _check_mean(options.get("mean", ()), hints.channels)
    by_size = folder_options(hints.images, hints.side, options.get("size"))
    kind = method_class(parse_name(method, METHODS).method)
    by_size |= {name: value for name, value in kind.options_for(hints.images).items() if name in option_names(method)}
    if "lr" in kind.recipes.get("default", {}):  # that of images of one's own is for LARS
        del by_size["lr"]
    of_method = photograph_options(method, dataset.name, by_size["size"])
    usual = recipe(method, dataset.name, **{**by_size, **of_method})
    suggested = _fitting(suggested, usual)
    rates = of_other_optimizer(options, usual.optimizer)
    config = recipe(method, dataset.name, **{**by_size, **of_method, **suggested, **rates, **options})
    chosen += _in_words(suggested, options)
    for line in filter(None, (dataset.summary(), dataset.warning(), chosen)):
        notify(line)
    return with_absolute_paths(_for_encoder(_normalized(config, dataset, hints.channels), options))


def _better_optimizer(method: str, choice: Recommendation) -> str:
    """A hint, if the method did best with another optimizer than its own; else empty."""
    run = choice.of(method)
    if run is None or "optimizer" not in run.options:
        return ""
    better = f"`optimizer` {run.options['optimizer']} (k-NN accuracy {run.knn:.1f} %)"
    return f"{method} with its published options; on {run.data} it did best with {better}"


def recommended_for(dataset: Dataset, size: int | None = None, epochs: int | None = None) -> Recommendation:
    """The method to train on a dataset, by the number and the size of its images, and the length of training.

    Photographs remain photographs if the encoder's input is small.
    """
    hints = dataset.recipe_hints()
    if hints is None:
        usual = recipe("byol", dataset.name)
        return recommend(None, size or data_options(dataset.name).get("size") or SIZES[0], epochs or usual.epochs)
    by_size = folder_options(hints.images, hints.side, size)
    return recommend(hints.images, max(hints.side, by_size["size"]), epochs or by_size["epochs"])


def _is_usual(options: dict[str, Any]) -> bool:
    """Whether encoder and optimizer are of the kind that recorded runs had: a learning rate fits no other."""
    encoder = sketch(options.get("encoder", Config.encoder))
    return "optimizer" not in options and (encoder is None or not is_transformer(encoder))


def _fitting(suggested: dict[str, Any], usual: Config) -> dict[str, Any]:
    """The suggested options, with a batch that is not too large for few images.

    None of them if they are for the default optimizer, and the recipe has another one.
    """
    if not suggested or ("optimizer" not in suggested and usual.optimizer != Config.optimizer):
        return {}
    return {**suggested, "batch": min(usual.batch, suggested.get("batch", usual.batch))}


def _in_words(suggested: dict[str, Any], options: dict[str, Any]) -> str:
    """The suggested options that the user has not given, as the end of a sentence."""
    taken = {name: value for name, value in suggested.items() if name not in {"batch", *options}}
    return f"; options: {', '.join(f'{name} {format_value(value)}' for name, value in taken.items())}" if taken else ""


def _normalized(config: Config, dataset: Dataset, found: int) -> Config:
    """The config with the mean and the standard deviation of the images, unless they are in colour."""
    if config.mean or (channels := channels_for(config, found)) == 3:
        return config
    measured = dataset.normalization(channels)
    notify(f"{pluralize(channels, 'channel')}: {measured}")
    return config.replace(mean=measured.mean, std=measured.std)


def _check_mean(mean: Sequence[float], found: int) -> None:
    """Refuse a normalization of another number of channels than the images have; grey ones may be read in colour."""
    if mean and len(mean) != found and not {len(mean), found} <= {1, 3}:
        advice = "give one for each channel, or leave out `mean` and `std` to measure them"
        raise UserError(f"`mean` has {pluralize(len(mean), 'number')}, but images have {found} channels: {advice}")


def channels_for(config: Config, found: int) -> int:
    """Channels of the encoder's input: those of the images, and three for grey images if the encoder needs three."""
    if found != 1:
        return found
    if config.init is not None:
        return 1 if initial_channels(config.init) == 1 else 3
    return 1 if takes_any_channels(config.encoder) else 3


def _for_encoder(config: Config, options: dict[str, Any]) -> Config:
    """The config with the method's recipe for transformers, if the encoder is one, except for the given options."""
    chosen = transformer_options(config)
    if options.get("optimizer", chosen.get("optimizer")) != chosen.get("optimizer"):
        options = {**options, "lr": config.lr, "weight_decay": config.weight_decay}  # those of the recipe do not fit
    return config.replace(**{name: value for name, value in chosen.items() if name not in options})


def transformer_options(config: Config) -> dict[str, Any]:
    """What the method's recipe for transformers changes; nothing if the encoder is another network."""
    encoder = sketch(config.encoder)
    if encoder is None or not is_transformer(encoder):
        return {}
    chosen = transformer_recipe(method_class(config.method))
    if config.init is not None or patch_projection(encoder) is None:
        chosen = {**chosen, "freeze_patches": False}
    return {name: value for name, value in chosen.items() if name in option_names(config.method)}


def inactive_options(config: Config) -> set[str]:
    """Return the names of options that have no effect, because of other options or of the data."""
    return config.inactive | Dataset.resolve(config).ignored


def unused_options(config: Config) -> list[str]:
    """Return the names of options that differ from the recipe although they have no effect."""
    published = photograph_options(config.method, config.data, config.size)
    usual = recipe(config.method, config.data, **published)
    return sorted(name for name in inactive_options(config) if getattr(config, name) != getattr(usual, name))


def with_absolute_paths(config: Config) -> Config:
    """As a run keeps it: found again from any other folder."""
    labels, root = (name and os.path.abspath(os.path.expanduser(name)) for name in (config.labels, config.root))
    return with_teacher(config.replace(data=Dataset.resolve(config).name, labels=labels, root=root))
