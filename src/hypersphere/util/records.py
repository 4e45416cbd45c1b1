"""Records in JSON files, checked against a TypedDict: a file may be damaged, or come from a stranger."""

import json
import reprlib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from hypersphere.errors import UserError, first_line

R = TypeVar("R")

_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", types.NoneType: "null"}


def read_record(file: Path, kind: type[R]) -> R:
    """Read a JSON file and check it.

    Args:
        file: The file.
        kind: A TypedDict. Fields that it does not name may be anything.

    Raises:
        UserError: If the file does not exist, is no JSON, or a field is missing or has another type.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return check_record(found, kind)
    except FileNotFoundError:
        raise UserError(f"{file} does not exist") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} is damaged ({first_line(error)})") from None


def check_record(found: Any, kind: type[R]) -> R:
    """Check a value that JSON gave against a TypedDict, a list, a dict, a union, Literal or a plain type.

    Raises:
        ValueError: If it does not fit. The message names the field.

    Example:
        >>> check_record({"names": ["a", 3]}, dict[str, list[str]])
        Traceback (most recent call last):
        ...
        ValueError: names[1] must be a text, got 3
    """
    _check(found, kind, "")
    return cast(R, found)


def _check(found: Any, kind: Any, name: str) -> None:
    origin = get_origin(kind)
    if is_typeddict(kind):
        _check_fields(found, kind, name)
    elif origin in (types.UnionType, Union, Literal):
        choices = get_args(kind)
        if not any(found == one if origin is Literal else _fits(found, one) for one in choices):
            raise _wrong(found, kind, name)
    elif origin in (list, tuple):
        if not isinstance(found, list | tuple):
            raise _wrong(found, kind, name)
        inside = get_args(kind)[0]
        if not (inside in _WORDS and all(type(part) is inside for part in found)):  # fast, as lists of files are long
            for place, part in enumerate(found):
                _check(part, inside, f"{name}[{place}]")
    elif origin is dict:
        if not isinstance(found, Mapping):
            raise _wrong(found, kind, name)
        for key, part in found.items():
            _check(part, get_args(kind)[1], f"{name}.{key}" if name else str(key))
    elif not _is(found, kind):
        raise _wrong(found, kind, name)


def _check_fields(found: Any, kind: Any, name: str) -> None:
    if not isinstance(found, Mapping):
        raise _wrong(found, dict, name)
    prefix = f"{name}." if name else ""
    for field, hint in get_type_hints(kind).items():
        if field in found:
            _check(found[field], hint, prefix + field)
        elif field in kind.__required_keys__:
            raise ValueError(f"{prefix}{field} is missing")


def _fits(found: Any, kind: Any) -> bool:
    try:
        _check(found, kind, "")
    except ValueError:
        return False
    return True


def _is(found: Any, kind: Any) -> bool:
    if kind is Any:
        return True
    if kind in (int, float):
        accepted = int if kind is int else int | float
        return isinstance(found, accepted) and not isinstance(found, bool)
    return isinstance(found, kind)


def _wrong(found: Any, kind: Any, name: str) -> ValueError:
    return ValueError(f"{name or 'it'} must be {_words(kind)}, got {reprlib.repr(found)}")


def _words(kind: Any) -> str:
    origin = get_origin(kind)
    if origin in (types.UnionType, Union):
        return " or ".join(map(_words, get_args(kind)))
    if origin is Literal:
        return " or ".join(map(str, get_args(kind)))
    if kind is dict or origin is dict:
        return "an object"
    return "a list" if origin in (list, tuple) else _WORDS.get(kind, getattr(kind, "__name__", str(kind)))
