"""Options that several methods share, and how the options of a method are found."""

import inspect
import re
from collections.abc import Collection
from dataclasses import Field, dataclass, field, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from hypersphere.errors import UserError
from hypersphere.util.option_fields import Limits, PlainValue, declared_limits, declared_type, option

if TYPE_CHECKING:
    from hypersphere.methods.base import Method

# types of options
Count = Annotated[int, Limits(least=1)]
Several = Annotated[int, Limits(least=2)]
Few = Annotated[int, Limits(least=1, most=64)]
Positive = Annotated[float, Limits(above=0)]
Share = Annotated[float, Limits(least=0, most=1)]
Weight = Annotated[float, Limits(least=0)]

# parameters of a method's __init__ that a run fills in by itself
PROVIDED = frozenset({"self", "encoder", "features", "classes", "input_shape", "norm", "seed", "epochs"})

# Defaults of the options that every config had before options belonged to methods. A run's hash counts these options
# where they differ from the values here, whatever their method's own defaults are.
SHARED_DEFAULTS: dict[str, Any] = {
    "hidden": 4096,
    "projection": 256,
    "tau": 0.99,
    "tau_end": 1.0,
    "temperature": 0.5,
    "teacher_temperature": 0.04,
    "teacher_warmup": 0,
    "predictor": True,
    "bottleneck": 512,
    "predictor_decays": True,
    "layers": 2,
    "redundancy": 0.005,
    "queue": 4096,
    "prototypes": 512,
    "codes_queue": 0,
    "jigsaw": 3,
    "small_crops": 0,
    "small_side": 0.5,
    "small_area": (),
}


@dataclass(frozen=True)
class NoOptions:
    """Options of a method that has none.

    Example:
        >>> hs.methods.NoOptions()
        NoOptions()
    """


@dataclass(frozen=True)
class ProjectorOptions:
    """Options of a method with a projector.

    Attributes:
        hidden: Hidden units of the projector.
        projection: Outputs of the projector.

    Example:
        >>> hs.methods.ProjectorOptions(hidden=512).projection
        256
    """

    hidden: int = option(4096, least=1)
    """Hidden units of the projector, and of the predictor if there is one."""
    projection: int = option(256, least=1)
    """Outputs of the projector, and of the predictor if there is one."""


@dataclass(frozen=True)
class MultiCropOptions:
    """Options of a method that learns from small crops, too.

    Attributes:
        small_crops: Number of small crops.
        small_side: Side of a small crop, relative to the large views.
        small_area: Smallest and largest share of the image's area that a small crop keeps.

    Example:
        >>> hs.methods.MultiCropOptions(small_crops=6).small_side
        0.5
    """

    small_crops: int = option(0, least=0, most=64)
    """Small crops of each image, besides its two large views."""
    small_side: float = option(0.5, above=0, most=1, used_if=lambda config: config.small_crops)
    """Side of a small crop, as a share of the side of the large views."""
    small_area: tuple[float, ...] = option((), used_if=lambda config: config.small_crops)
    """Smallest and largest share of the image's area that a small crop keeps (empty: from half of the smallest share
    that the large views keep, up to a quarter)."""

    def __post_init__(self) -> None:
        area = self.small_area
        if area and not (len(area) == 2 and 0 < area[0] <= area[1] <= 1):
            raise UserError(f"`small_area` must be two shares in (0, 1], the smaller one first, got {area}")


class OptionsOfInit:
    """`Options` of methods that declare none: made from the parameters of `__init__`."""

    def __get__(self, method: Any, kind: "type[Method]") -> Any:
        return method_options(kind)


def method_options(kind: "type[Method]", reserved: Collection[str] = ()) -> type:
    """Return the dataclass with the options of a method.

    Options are the parameters of `__init__`, and of the parent's `__init__` if it takes `**kwargs` to pass on. A class
    may declare a dataclass `Options` instead.

    Args:
        kind: Class of the method.
        reserved: Names of parameters that cannot be options.

    Raises:
        UserError: If a declared `Options` is not a frozen dataclass.
    """
    owner: Any = next(base for base in kind.__mro__ if {"Options", "__init__"} & vars(base).keys())
    if isinstance(vars(owner).get("Options"), OptionsOfInit):  # of `Method` itself
        return NoOptions
    if "Options" in vars(owner):
        declared = getattr(owner.Options, "__dataclass_params__", None)
        if declared is None or not declared.frozen:
            raise UserError(f"{owner.__qualname__}.Options must be a frozen dataclass")
        return owner.Options
    parameters, passes_on = own_parameters(owner)
    fields = [
        (name, kind, made)
        for name, (kind, made) in parameters.items()
        if name not in PROVIDED and name not in reserved and isinstance(made.default, PlainValue | tuple)
    ]
    parent = kind.__mro__[kind.__mro__.index(owner) + 1]
    base = method_options(parent, reserved) if passes_on else NoOptions
    return make_dataclass(f"{owner.__name__}Options", fields, bases=(base,), frozen=True)


def own_parameters(owner: Any) -> tuple[dict[str, tuple[Any, Field[Any]]], bool]:
    """Return the parameters of a class's `__init__`, each as type and field, and whether it passes others on."""
    try:
        types, annotations = (get_type_hints(owner.__init__, include_extras=extras) for extras in (False, True))
    except NameError:  # a name that is imported for type checkers only
        types = annotations = {}
    helps = _documented_args(owner.__doc__)
    parameters = inspect.signature(owner.__init__).parameters.values()
    found = {}
    for one in parameters:
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            required = one.default is one.empty and one.name not in SHARED_DEFAULTS
            default = None if required else SHARED_DEFAULTS.get(one.name) if one.default is one.empty else one.default
            kind = declared_type(types.get(one.name), default)
            about = {"limits": declared_limits(annotations.get(one.name)), "help": helps.get(one.name, "")}
            made: Any = field(default=default, metadata=about)
            found[one.name] = (kind | None if required else kind, made)
    return found, any(one.kind is one.VAR_KEYWORD for one in parameters)


def _documented_args(docstring: str | None) -> dict[str, str]:
    """Return what the section "Args:" of a docstring says in the first paragraph on each name, on one line."""
    _, _, rest = inspect.cleandoc(docstring or "").partition("\nArgs:\n")
    section = re.split(r"^\S", rest, maxsplit=1, flags=re.MULTILINE)[0]
    entries = re.findall(r"^ {4}(\w+)(?: \([^)]*\))?:(.*(?:\n {5,}.*)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def accepted_parameters(kind: "type[Method]") -> set[str]:
    """Return the parameters of `__init__`, and of the parents' `__init__` that it passes `**kwargs` to."""
    names: set[str] = set()
    for owner in kind.__mro__:
        if "__init__" in vars(owner):
            parameters, passes_on = own_parameters(owner)
            names |= parameters.keys()
            if not passes_on:
                break
    return names
