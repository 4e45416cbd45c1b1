"""Command-line words to options: tyro parses them, and every mistake becomes one line."""

import collections
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict, TypeVar, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from hypersphere.cli.commands import usage
from hypersphere.cli.help import argument_name, describe_options, is_argument, print_help, wants_help
from hypersphere.errors import UserError, closest_name

Options = TypeVar("Options")
OPTIONAL_VALUE = "may stand without a value, which then is empty"  # marks such a type: Annotated[str, OPTIONAL_VALUE]


class _Refused(Exception):
    """Carries a UserError through tyro, which catches every ValueError."""


def parse(command: str, options: type[Options], words: Sequence[str]) -> Options:
    """Parse the words that follow `hypersphere COMMAND`.

    Args:
        command: Name of the command, a key of `COMMANDS`.
        options: A dataclass. Fields annotated with `tyro.conf.Positional` are arguments, the others are options. Fields
            without a default are required. Attribute docstrings are the help texts.
        words: Words of the command line.

    Returns:
        An instance of `options`.

    Raises:
        UserError: If the words cannot be parsed. The message is one line.
        SystemExit: After printing the help, if the words ask for it.

    Example:
        >>> from hypersphere.cli.demo import DemoOptions
        >>> parse("demo", DemoOptions, ["--seed", "1", "--epochs=20"])
        DemoOptions(out=PosixPath('runs/demo'), seed=1, epochs=20)
    """
    if wants_help(words):
        described = describe_options(options)
        print_help(command, options.__doc__ or "", described, list(described))
    hints = get_type_hints(options, include_extras=True)
    given = given_options(command, hints, words)
    for field in dataclasses.fields(options):  # type: ignore[arg-type]
        if field.default is dataclasses.MISSING and field.name not in given:
            hint = hints[field.name]
            shown = argument_name(field.name, hint) if is_argument(hint) else _option(field.name)
            raise missing_argument(command, shown)
    return options(**given)


def missing_argument(command: str, name: str) -> UserError:
    """The error for a required argument, such as RUN, or option, such as --out."""
    return UserError(f"missing {'option' if name.startswith('-') else 'argument'} {name}: {usage(command)}")


def given_options(
    command: str, hints: Mapping[str, Any], words: Sequence[str], *, allow_unknown: bool = False
) -> dict[str, Any]:
    """Parse words into the options that they give; options that are not given have no entry.

    Args:
        command: Name of the command, for error messages.
        hints: Type of each option and argument by its name, as `get_type_hints(…, include_extras=True)` returns them.
        words: Words of the command line.
        allow_unknown: Ignore what is not in `hints`.

    Returns:
        Values by name, converted to their types.

    Raises:
        UserError: If the words cannot be parsed.
    """
    try:
        given, unknown = _parse_known(hints, words)
    except SystemExit:
        raise UserError(f"{_first_failing_word(hints, words)} needs a value") from None
    except _Refused as refused:
        raise refused.args[0] from None
    if unknown and not allow_unknown:
        _collect_rest(command, hints, given, unknown)
    _check_lists_given_once(hints, words)
    return given


def convert(name: str, hint: Any, words: list[str]) -> Any:
    """Convert the words of an option's value to the option's type, as tyro does.

    Raises:
        UserError: If the words are no value of this type.

    Example:
        >>> convert("small_area", tuple[float, ...], ["0.1", "0.3"])
        (0.1, 0.3)
    """
    shown = argument_name(name, hint) if is_argument(hint) else f"`{name}`"
    if any(word.startswith("--") for word in words) or (is_list(hint) and not words):
        raise UserError(f"{shown} needs a value")
    constructor = _constructor(hint)
    values = [word.capitalize() for word in words] if hint is bool else words
    try:
        if not {*values} <= {*(constructor.choices or values)}:
            raise ValueError
        return constructor.instance_from_str(values)
    except ValueError:
        raise UserError(f"{shown} must be {_expected(hint)}, got {' '.join(words)!r}") from None


def is_list(hint: Any) -> bool:
    """Whether an option takes several values: tuple[X, ...], maybe annotated or optional."""
    return get_origin(hint) is tuple or any(map(is_list, get_args(hint)))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _parse_known(hints: Mapping[str, Any], words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The options given, and the words that belong to none. SystemExit: an option lacks its value."""
    optional = [name for name, hint in hints.items() if OPTIONAL_VALUE in getattr(hint, "__metadata__", ())]
    try:
        return _parse_strictly(hints, words)
    except (SystemExit, _Refused):
        if not optional:
            raise
    given, unknown = _parse_strictly({**hints, **dict.fromkeys(optional, bool)}, words)
    return {name: "" if name in optional else value for name, value in given.items()}, unknown


def _parse_strictly(hints: Mapping[str, Any], words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    fields = {name: _with_named_errors(name, hint) for name, hint in hints.items()}
    make_type: Any = TypedDict
    options = make_type("options", fields, total=False)  # total=False: options that are not given are left out
    return tyro.cli(options, args=words, return_unknown_args=True, console_outputs=False, add_help=False)


def _with_named_errors(name: str, hint: Any) -> Any:
    """The type with tyro's own conversion, whose errors name the option."""

    def convert_or_refuse(words: list[str]) -> Any:
        if is_argument(hint) and words in ([], [[]]):  # tyro met an unknown option instead, which is reported later
            return None
        try:
            return convert(name, hint, words)
        except UserError as error:
            raise _Refused(error) from None

    if hint is bool:  # a pair of flags without a value
        return hint
    constructor = dataclasses.replace(_constructor(hint), instance_from_str=convert_or_refuse, choices=None)
    return Annotated[(hint, constructor)]


def _constructor(hint: Any) -> PrimitiveConstructorSpec[Any]:
    found = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(hint, set()))
    assert isinstance(found, PrimitiveConstructorSpec), f"tyro cannot parse {hint}"
    return found


def _expected(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if get_args(hint):  # X of Annotated[X, …], X | None and tuple[X, ...]
        return _expected(get_args(hint)[0])
    return {bool: "true or false", int: "an integer", float: "a number"}.get(hint, "a value")


def _first_failing_word(hints: Mapping[str, Any], words: Sequence[str]) -> str:
    """The word after the longest beginning of the words that can be parsed."""

    def parses(words: Sequence[str]) -> bool:
        try:
            _parse_known(hints, words)
        except (SystemExit, _Refused):
            return False
        return True

    return next(words[count] for count in reversed(range(len(words))) if parses(words[:count]))


def _collect_rest(command: str, hints: Mapping[str, Any], given: dict[str, Any], unknown: Sequence[str]) -> None:
    """Add words that no option takes to the last argument if it is a list; refuse others."""
    *_, last = ("", *(name for name in hints if is_argument(hints[name])))
    for word in unknown:
        if word.startswith("-"):
            raise _unknown_option(command, hints, word.partition("=")[0])
        if not is_list(hints.get(last)):
            images = [name for name in (word, given.get("method")) if "data" in hints and name and os.path.exists(name)]
            if images:
                raise UserError(f"unexpected argument: {word!r} (pass images as `data` {images[0]})")
            raise UserError(f"unexpected argument: {word!r} (usage: {usage(command)})")
        given[last] += convert(last, hints[last], [word])


def _unknown_option(command: str, hints: Mapping[str, Any], option: str) -> UserError:
    flags = [f"no-{name}" for name, hint in hints.items() if hint is bool]
    options = [name for name, hint in hints.items() if not is_argument(hint)]
    suggestion = closest_name(option, [_option(name) for name in (*options, *flags)])
    for name, hint in hints.items():
        if is_argument(hint) and option == _option(name):
            return UserError(f"unknown option {option}: give {argument_name(name, hint)} alone, as in {usage(command)}")
    return UserError(f"unknown option {option}" + (f": did you mean {suggestion}?" if suggestion else ""))


def _check_lists_given_once(hints: Mapping[str, Any], words: Sequence[str]) -> None:
    """tyro would keep the last one."""
    counts = collections.Counter(word.partition("=")[0].replace("_", "-") for word in words)
    for name, hint in hints.items():
        if is_list(hint) and counts[_option(name)] > 1:
            raise UserError(f"`{name}` is given twice: give all of its values at once")
