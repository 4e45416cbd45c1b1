"""Options as fields of frozen dataclasses: declaring them, and checking the values that users give."""

import math
import numbers
import os
import reprlib
import types
from collections.abc import Callable, Mapping
from dataclasses import Field, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from hypersphere.errors import UserError
from hypersphere.util.references import reference_to

PlainValue = bool | int | float | str | None  # the type of an option whose declaration gives none


class Limits(NamedTuple):
    """Limits of a number, for the type of a parameter that is an option of a method: `Annotated[int, Limits(least=1)]`.

    Attributes:
        least: Smallest value allowed.
        above: Value that the option must exceed.
        most: Largest value allowed.
        below: Value that the option must stay below.

    Example:
        >>> hs.methods.Limits(least=0, most=1).contain(0.5)
        True
    """

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def __repr__(self) -> str:  # short, because it is part of signatures
        given = (f"{name}={limit}" for name, limit in self._asdict().items() if limit is not None)
        return f"Limits({', '.join(given)})"

    def contain(self, value: float) -> bool:
        """Return whether a number is finite and within the limits."""
        return (
            math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        if self.least is not None and self.most is not None:
            return f"between {self.least} and {self.most}"
        named = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{words} {limit}" for words, limit in named.items() if limit is not None) or "finite"


def option(
    default: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    hashed: bool = True,
    used_if: Callable[[Any], Any] | None = None,
) -> Any:
    """Declare an option of a run: a dataclass field with limits.

    Write a string literal below the field: it is the help text of the option.

    Args:
        default: Value of the option if the user gives none.
        least: Smallest value allowed.
        above: Value that the option must exceed.
        most: Largest value allowed.
        below: Value that the option must stay below.
        hashed: Whether the option changes the result of a run, and therefore its hash.
        used_if: Function of a config that says whether the option has an effect on it. None means always.

    Returns:
        A `dataclasses.field`.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Options:
        ...     tau: float = hs.methods.option(0.99, least=0, most=1)
        ...     "Decay of the moving average."
        >>> Options().tau
        0.99
    """
    limits = Limits(least, above, most, below)
    return field(default=default, metadata={"limits": limits, "hashed": hashed, "used_if": used_if})


def check_limits(declared: Field[Any], value: Any) -> None:
    """Raise a `UserError` if a number is not within the limits of its field, or not finite."""
    limits = declared.metadata.get("limits", Limits())
    if isinstance(value, int) and abs(value) >= 2**63:
        raise UserError(f"`{declared.name}` would need more memory than any machine has, got {value}")
    if isinstance(value, int | float) and not limits.contain(value):
        raise UserError(f"`{declared.name}` must be {limits}, got {value}")


def check(options: object, name: str, right: bool, expected: str) -> None:
    """Raise a `UserError` that says what an option must be, unless it is right."""
    if not right:
        raise UserError(f"`{name}` must be {expected}, got {getattr(options, name)}")


def coerce(name: str, kind: Any, value: Any) -> Any:
    """Return a value in the type of its field: 10 as 10.0, "a" as Path("a") or ("a",).

    Raises:
        UserError: If the value is of another type, or not one of the choices.
    """
    if kind is Any:
        return value
    if get_origin(kind) in (types.UnionType, Union):
        members = [member for member in get_args(kind) if member is not types.NoneType]
        if value is None and len(members) < len(get_args(kind)):
            return None
        if len(members) > 1:
            return _coerce_plain(name, value)
        (kind,) = members
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise UserError(f"`{name}` must be one of {', '.join(get_args(kind))}, got {reprlib.repr(value)}")
        return value
    if get_origin(kind) is tuple:
        if isinstance(value, Mapping):
            value = [f"{key}={one}" for key, one in value.items()]
        values = value if isinstance(value, list | tuple) else (value,)
        return tuple(coerce(name, get_args(kind)[0], part) for part in values)
    if kind is str and callable(value):
        return _reference(name, value)
    accepted, expected = _ACCEPTED[kind]
    if not isinstance(value, accepted) or isinstance(value, bool) != (kind is bool):
        raise UserError(f"`{name}` must be {expected}, got {reprlib.repr(value)}")
    return Path(os.path.expanduser(value)) if kind is Path else kind(value)


# type of a field → the types accepted for it, and how messages call them
_ACCEPTED: dict[type, tuple[Any, str]] = {
    bool: (bool, "True or False"),
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    str: (str | os.PathLike, "a name"),
    Path: (str | os.PathLike, "a path"),
}


def _coerce_plain(name: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_coerce_plain(name, part) for part in value)
    if not isinstance(value, PlainValue):
        raise UserError(f"`{name}` must be a number, a string, True, False, None or a list of them, got {value!r}")
    return value


def _reference(name: str, value: Any) -> str:
    reference = reference_to(value)
    if reference is None:
        expected = "a name, or a function or class at the top level of a module"
        raise UserError(f"`{name}` must be {expected}, got {type(value).__name__}")
    return reference


def declared_type(annotation: Any, default: Any) -> Any:
    """Return the type of an option from the annotation and the default of a parameter."""
    if _is_supported(annotation):
        return annotation
    return type(default) if type(default) in _ACCEPTED else PlainValue


def declared_limits(annotation: Any) -> Limits:
    """Return the limits in `Annotated[X, Limits(…)]`, which may be a member of a union."""
    parts = (annotation, *get_args(annotation))
    found = (one for part in parts for one in getattr(part, "__metadata__", ()) if isinstance(one, Limits))
    return next(found, Limits())


def _is_supported(kind: Any) -> bool:
    if kind in _ACCEPTED:
        return True
    if get_origin(kind) is Literal:
        return all(isinstance(choice, str) for choice in get_args(kind))
    if get_origin(kind) is tuple:
        return get_args(kind)[1:] == (...,) and get_args(kind)[0] in _ACCEPTED
    members = [member for member in get_args(kind) if member is not types.NoneType]
    return get_origin(kind) in (types.UnionType, Union) and len(members) == 1 and _is_supported(members[0])
