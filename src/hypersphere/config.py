"""One run as data: every option that makes it, and its hash. Options are declared with what they configure."""

import ast
import contextlib
import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast, get_type_hints

from hypersphere.data.options import DataSpec
from hypersphere.errors import UserError, did_you_mean
from hypersphere.losses.options import ProjectionLossOptions
from hypersphere.methods import METHODS, Method, method_class
from hypersphere.methods.options import SHARED_DEFAULTS, MultiCropOptions, method_options, own_parameters
from hypersphere.methods.recipes import parse_name, published_recipe, recipe_on
from hypersphere.nn.options import EncoderOptions
from hypersphere.optim.options import USUAL, OptimizerOptions
from hypersphere.presets import data_options
from hypersphere.regularize.options import RegularizerOptions
from hypersphere.train.options import TrainingOptions
from hypersphere.util.option_fields import check, check_limits, coerce, option
from hypersphere.util.references import allow, is_allowed, is_reference
from hypersphere.views.options import ViewOptions

RECIPE_VERSION = 1  # raise it whenever a default changes what a run computes
_NO_DEFAULT = object()


class _Unused:
    """Room for options of a saved config that its method does not have; they count in its hash only."""

    __slots__ = ("_unused",)  # apart from the fields, which vars() shows
    _unused: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Config(
    _Unused,
    TrainingOptions,
    OptimizerOptions,
    RegularizerOptions,
    ProjectionLossOptions,
    EncoderOptions,
    ViewOptions,
    DataSpec,
):  # the first fields are those of the last class
    """Options of a run. The defaults are the paper's for CIFAR-10 and ResNet-18, 300 epochs.

    Options of a method are fields, too: `Config(method="moco")` is an instance of `config_type("moco")`, a subclass
    with the options of `MoCo`.

    Raises:
        UserError: If an option has the wrong type or value.

    Example:
        >>> from hypersphere.config import Config
        >>> config = Config(method="moco", queue=512)
        >>> config.queue, config.epochs
        (512, 300)
        >>> config.replace(epochs=100).epochs
        100
    """

    method: str = "byol"
    """Method: a name (`hypersphere methods` lists them), or your own, as package.module:Class."""
    out: Path | None = option(None, hashed=False)
    """Folder of the run (None: a new one in runs/)."""

    def __new__(cls, *args: Any, **options: Any) -> "Config":
        return object.__new__(config_type(options.get("method", cls.method)) if cls is Config else cls)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_unused", ())
        for name, (declared, kind) in _declared(type(self)).items():
            value = coerce(name, kind, getattr(self, name))
            check_limits(declared, value)
            object.__setattr__(self, name, value)
        shorter = self.warmup is None or 0 <= self.warmup < self.epochs
        check(self, "warmup", shorter, f"less than `epochs` {self.epochs}")
        for base in type(self).__mro__:  # the checks of groups and of the method's options
            if not issubclass(base, Config) and "__post_init__" in vars(base):
                base.__post_init__(self)  # type: ignore[attr-defined]

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_process, (self.to_json(),)

    def replace(self, **options: Any) -> "Config":
        """Return a config with some options changed. With another `method`, options that it does not have are dropped.

        Raises:
            UserError: If the method does not have an option, or a value is wrong.

        Example:
            >>> from hypersphere.config import recipe
            >>> recipe("byol", "digits").replace(tau=0.9).tau
            0.9
        """
        same = options.get("method", self.method) == self.method
        kind = type(self) if same else config_type(options["method"])
        kept = {name: value for name, value in vars(self).items() if name in _declared(kind)}
        changed = kind(**{**kept, **_coerce_options(kind, options)})
        if same:
            object.__setattr__(changed, "_unused", self._unused)
        return changed

    def without_unused(self) -> "Config":
        """Return the config without options of earlier versions that its method does not have, as it is made today."""
        return type(self)(**vars(self))

    def to_json(self) -> dict[str, Any]:
        """Return all options, as `json.dumps` takes them."""
        plain = {**dict(self._unused), **vars(self)}
        return {name: str(value) if isinstance(value, Path) else value for name, value in plain.items()}

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> "Config":
        """Return a saved config.

        Options that its method does not have are dropped; runs of earlier versions have some. They still count in the
        hash, so that it stays as it was. A method that is not one of ours is imported only if the user named its module
        or trusts a file that names it (`util/trust.py`). Otherwise the config has no options of the method.

        Args:
            saved: What `to_json` returned.

        Raises:
            UserError: If an option is unknown, or a value is wrong.
        """
        saved = dict(saved)
        method = saved.get("method", Config.method)
        kind = _saved_type(method)
        if "extra" not in _declared(kind):
            saved |= _own_options_of_0_2(saved.pop("extra", None) or ())
        known = {name: value for name, value in saved.items() if name in _declared(kind)}
        unused = {}
        for name, value in saved.items():
            if name not in known:
                if name not in SHARED_DEFAULTS and not is_reference(method):
                    raise unknown_option(name, [kind.method])
                unused[name] = tuple(value) if isinstance(value, list) else value
        config = kind(**known)
        hashed_values = {
            name: value for name, value in unused.items() if value != SHARED_DEFAULTS.get(name, _NO_DEFAULT)
        }
        object.__setattr__(config, "_unused", tuple(hashed_values.items()))
        return config

    def differences(self, other: "Config") -> list[str]:
        """Return the names of this config's options that make the results of the two runs differ."""
        defaults = _baseline(type(self))
        return [name for name in defaults if getattr(self, name) != getattr(other, name, defaults[name])]

    @property
    def inactive(self) -> set[str]:
        """Names of options that have no effect, because others switch them off."""
        conditions = {declared.name: declared.metadata.get("used_if") for declared in dataclasses.fields(self)}
        return {name for name, used in conditions.items() if used is not None and not used(self)}

    @property
    def data_name(self) -> str:
        """The dataset as part of a file name."""
        return re.sub(r"[^\w.-]+", "-", Path(self.data).name)

    @property
    def hash(self) -> str:
        """Hash of the options that change the result and differ from their defaults.

        A new option therefore leaves the hashes of earlier runs unchanged.
        """
        return _hash(self, self._unused)

    @property
    def title(self) -> str:
        """The method with its regularizers, such as byol-uni-mhe."""
        return self.method.rpartition(":")[2] + "-uni" * (self.uniformity > 0) + "-mhe" * (self.energy > 0)


def config_type(method: str) -> type[Config]:
    """Return the class of a method's configs: a frozen dataclass with the fields of `Config` and of its options.

    Args:
        method: Name of a method in `METHODS`, or package.module:Class.

    Raises:
        UserError: If there is no such method.

    Example:
        >>> from hypersphere.config import config_type
        >>> config_type("moco").queue
        4096
    """
    return _compose(method_class(method), method)


def _own_options_of_0_2(extra: Sequence[str]) -> dict[str, Any]:
    """Return what `extra` held until version 0.2.0: options of one's own method, as name=value in Python's syntax."""
    found: dict[str, Any] = {}
    for word in extra:
        name, _, value = word.partition("=")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = {"true": True, "false": False}.get(value.lower(), value)
    return found


@cache
def _compose(kind: type[Method], method: str) -> type[Config]:
    options = method_options(kind, reserved=dir(Config))
    bases = [options, Config]
    if kind.takes_small_crops and not issubclass(options, MultiCropOptions):
        bases.insert(1, MultiCropOptions)
    fields: list[Any] = [("method", str, method)]
    parameters, _ = own_parameters(kind)
    if "norm" in parameters:
        fields.append(("norm", _declared(Config)["norm"][1], parameters["norm"][1].default))
    checks = {"__post_init__": Config.__post_init__}  # which calls those of the options
    made = dataclasses.make_dataclass(
        f"{kind.__name__}Config", fields, bases=tuple(bases), namespace=checks, frozen=True
    )
    return cast(type[Config], made)


def _from_process(saved: Mapping[str, Any]) -> Config:
    """Return the config that another process of ours sent."""
    for name in code_named_in(saved).values():
        allow(name)
    return Config.from_json(saved)


def code_named_in(saved: Mapping[str, Any]) -> dict[str, str]:
    """Return the references to code in a saved config, by option."""
    return {name: saved[name] for name in ("method", "encoder", "regularizer", "data") if is_reference(saved.get(name))}


def _saved_type(method: str) -> type[Config]:
    """Return the class of a saved config: without options of the method if that may not or cannot be imported."""
    if not is_reference(method):
        return config_type(method)
    if is_allowed(method):
        with contextlib.suppress(Exception):  # whatever the user's module raises
            return config_type(method)
    return _compose(Method, method)


def _declared(kind: type[Config]) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    """Return the fields of a config by name, each with its type."""
    return _resolve(cast(Any, kind))  # to mypy, a dataclass is not hashable


@cache
def _resolve(kind: type) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    types = get_type_hints(kind)
    return {declared.name: (declared, types[declared.name]) for declared in dataclasses.fields(kind)}


def _baseline(kind: type[Config]) -> dict[str, Any]:
    """Return the hashed options of a config with the values that its hash does not count."""
    shared = {**{declared.name: declared.default for declared in dataclasses.fields(Config)}, **SHARED_DEFAULTS}
    hashed = (declared for declared in dataclasses.fields(kind) if declared.metadata.get("hashed", True))
    return {declared.name: shared.get(declared.name, declared.default) for declared in hashed}


@lru_cache(maxsize=4096)  # results are looked up by it many times
def _hash(config: Config, unused: tuple[tuple[str, Any], ...]) -> str:
    values = {name: (getattr(config, name), default) for name, default in _baseline(type(config)).items()}
    hashed_values = {name: value for name, (value, default) in values.items() if value != default}
    text = json.dumps({"version": RECIPE_VERSION, **hashed_values, **dict(unused)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def option_names(method: str) -> set[str]:
    """Return the names of all options of a method, given with or without a variant such as -mhe.

    Example:
        >>> from hypersphere.config import option_names
        >>> "queue" in option_names("moco-mhe"), "queue" in option_names("byol")
        (True, False)
    """
    return set(_declared(config_type(parse_name(method, METHODS).method)))


def unknown_option(name: str, methods: Sequence[str]) -> UserError:
    """Return the error for an option that these methods do not have: it names the methods that have it.

    Example:
        >>> from hypersphere.config import unknown_option
        >>> print(unknown_option("tau_end", ["simclr"]))
        `tau_end` is not an option of simclr (byol has it)
    """
    having = [method for method in METHODS if name in option_names(method)]
    if not having:
        known = set.union(*map(option_names, methods))
        return UserError(f"unknown option {name!r}{did_you_mean(name, known)}")
    verb = "has" if len(having) == 1 else "have"
    return UserError(f"`{name}` is not an option of {', '.join(methods)} ({', '.join(having)} {verb} it)")


def coerce_options(method: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in the types of a method's config, without checking whether they agree with each other.

    Args:
        method: Name of the method, with or without a variant such as -mhe; None if it is not known yet: then options
            of methods are returned as they are.
        options: Options by name.

    Raises:
        UserError: If the method does not have an option, or a value has the wrong type.

    Example:
        >>> from hypersphere.config import coerce_options
        >>> coerce_options("byol-mhe", {"energy": 1, "energy_layers": "predictor"})
        {'energy': 1.0, 'energy_layers': ('predictor',)}
    """
    if method is not None:
        return _coerce_options(config_type(parse_name(method, METHODS).method), options)
    shared = {name: value for name, value in options.items() if name in _declared(Config)}
    for name in options.keys() - shared.keys():
        if not any(name in option_names(known) for known in METHODS):
            raise unknown_option(name, [*METHODS])
    return {**options, **_coerce_options(Config, shared)}


def _coerce_options(kind: type[Config], options: Mapping[str, Any]) -> dict[str, Any]:
    declared = _declared(kind)
    for name in options:
        if name not in declared:
            raise unknown_option(name, [kind.method])
    return {name: coerce(name, declared[name][1], value) for name, value in options.items()}


def format_value(value: Any) -> str:
    """Return the value of an option as people write it: ("a", "b") as "a + b"."""
    return " + ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def recipe(method: str, data: str = "cifar10", **options: Any) -> Config:
    """Return the config of a method on a dataset.

    Args:
        method: Name of the method, optionally with -uni (uniformity loss), -mhe (energy) or -uni-mhe.
        data: Name of the dataset, a folder of images or a file of arrays.
        options: Options that differ from the recipe.

    Raises:
        UserError: If the method or the dataset is unknown, or an option is wrong.

    Example:
        >>> from hypersphere.config import recipe
        >>> recipe("byol-mhe", "digits", epochs=20).energy
        10.0
    """
    name, data = parse_name(method, METHODS), coerce("data", str, data)
    kind = method_class(name.method)
    of_data = data_options(data)
    published = published_recipe(kind, data, of_data.get("size"), name.energy)
    of_method = {**recipe_on(kind, "default"), **name.variant, **published}
    # the defaults of methods are for larger images than digits
    parts = (of_method, of_data) if data == "digits" else (of_data, of_method)
    on_data = {} if data == "imagenet" else recipe_on(kind, data)
    config = config_type(name.method)
    chosen = {"data": data, **parts[0], **parts[1], **on_data}
    known = {option: value for option, value in chosen.items() if option in _declared(config)}  # not all in a subclass
    given = _coerce_options(config, options)
    return config(**{**known, **of_other_optimizer(given, known.get("optimizer", Config.optimizer)), **given})


def of_other_optimizer(options: dict[str, Any], usual: str) -> dict[str, Any]:
    """Return the learning rate and the weight decay for the optimizer in `options`, if it is not the usual one."""
    chosen = options.get("optimizer", usual)
    return {} if chosen == usual else USUAL[chosen]


def photograph_options(method: str, data: str, size: int | None) -> dict[str, Any]:
    """Return what a method changes on images with sides of `size` pixels, as its authors published it for ImageNet."""
    name = parse_name(method, METHODS)
    published = published_recipe(method_class(name.method), data, size, name.energy)
    return {option: value for option, value in published.items() if option in option_names(method)}
