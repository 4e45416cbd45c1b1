"""The words of a command line → options. A mistake becomes one line."""

import contextlib
import dataclasses
import io
import itertools
import re
from collections.abc import Sequence
from typing import Annotated, Any, get_origin

import tyro

from hypersphere.errors import UserError, similar


def with_short(words: Sequence[str]) -> list[str]:
    """-o stands for --out."""
    return ["--out" if word == "-o" else word for word in words]


def take_word(words: list[str], kind: type, name: str | None = None, *, strict: bool = True) -> str | None:
    """Take out the one word, of the given name, that is neither an option nor its value: it may stand anywhere. Unless
    `strict`, there may be unknown options, with one value each."""
    free = _free_places(words, kind, strict)
    if len(free) > (name is not None):
        expected = f" (expected one {name})" if name else ""
        raise UserError(f"unexpected argument: {words[free[-1]]!r}{expected}")
    return words.pop(free[0]) if free else None


def take_words(words: list[str], kind: type) -> list[str]:
    """Take out all such words."""
    free = _free_places(words, kind)
    return [words.pop(place) for place in reversed(free)][::-1]


def check_known(words: list[str], kind: type, methods: Sequence[str]) -> None:
    """Raise a `UserError` if a method's config has no option of such a name."""
    from hypersphere.config import unknown_option

    known = _values_of_options(kind)
    for word in words:
        option = word.partition("=")[0].replace("_", "-")
        if option.startswith("--") and option not in known:
            error = unknown_option(option[2:].removeprefix("no-").replace("-", "_"), methods)
            raise (
                error
                if "is not an option" in str(error)
                else UserError(f"unknown option {option}{similar(option, known)}")
            )


def _free_places(words: list[str], kind: type, strict: bool = True) -> list[int]:
    """Where words stand that are neither options nor their values."""
    counts = _values_of_options(kind)
    _say_flags(words, counts)
    free, left = [], 0  # left: values still to come, of the option before
    for place, word in enumerate(words):
        option = word.partition("=")[0].replace("_", "-")
        if word.startswith("--") or (word.startswith("-") and left != 1):  # -1 may be a value
            if option not in counts and strict:
                raise UserError(f"unknown option {option}{similar(option, counts)}")
            left = 0 if "=" in word else counts.get(option, 1)
        elif left == 0:
            free.append(place)
        else:
            left -= left == 1
    return free


_MANY = -1
_YES, _NO = ("true", "yes", "on"), ("false", "no", "off", "none")


def _say_flags(words: list[str], counts: dict[str, int]) -> None:
    """What takes no value, but was given one: --predictor none is --no-predictor."""
    for place in reversed(range(len(words) - 1)):
        flag, value = words[place].replace("_", "-"), words[place + 1].lower()
        if counts.get(flag) == 0 == counts.get(f"--no-{flag[2:]}") and value in (*_YES, *_NO):
            words[place : place + 2] = [flag if value in _YES else f"--no-{flag[2:]}"]


def _values_of_options(kind: type) -> dict[str, int]:
    counts = {"-h": 0, "--help": 0}
    for field in dataclasses.fields(kind):
        option = field.name.replace("_", "-")
        if get_origin(field.type) is Annotated:  # not for the command line
            continue
        if field.type is bool:
            counts |= {f"--{option}": 0, f"--no-{option}": 0}
        else:
            counts[f"--{option}"] = _MANY if get_origin(field.type) is tuple else 1
    return counts


def peek(words: Sequence[str], option: str) -> str | None:
    """The (last) value of an option, before the others are understood."""
    value = None
    for word, following in itertools.pairwise([*words, "--"]):
        if word == option and following.startswith("--"):
            raise UserError(f"{option} needs a value")
        if word.partition("=")[0] == option:
            value = following if word == option else word.partition("=")[2]
    return value


def value_optional(words: list[str], option: str) -> list[str]:
    """The words, where an option that stands without a value is given an empty one."""
    following = itertools.pairwise([*words, "--"])
    return [f"{word}=" if word == option and after.startswith("--") else word for word, after in following]


def parse(kind: Any, words: list[str], prog: str, about: str, default: Any) -> Any:
    """Options by tyro; its boxed message of a mistake becomes one line. Of a list that is said twice it would keep the
    last alone."""
    said = [word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")]
    for option, count in _values_of_options(kind).items():
        if count == _MANY and said.count(option) > 1:
            raise UserError(f"{option} is said twice: give all of its values at once")
    captured = io.StringIO()
    try:
        with contextlib.redirect_stderr(captured):
            return tyro.cli(kind, prog=prog, description=about, args=words, default=default)
    except SystemExit as stopped:
        if not stopped.code:
            raise
        raise UserError(_one_line(captured.getvalue())) from None


def _one_line(box: str) -> str:
    """What stands between the title of the box and its first rule."""
    lines = [line.strip("│╭╮╰╯─ ") for line in box.splitlines()[1:]]
    groups = itertools.groupby(lines, key=lambda line: re.search(r"\w", line) is not None)
    message = next(" ".join(group) for worded, group in groups if worded)
    message = re.sub(r"^Error parsing (--[\w-]+: )?(\w+: )?", r"\1", message)
    message = re.sub(
        r"no type matching \{None\}\|INT could be instantiated from \['(.*)'\]",
        r"a whole number is wanted, not '\1'",
        message,
    )
    message = re.sub(r"invalid literal for int\(\) with base 10: ", "a whole number is wanted, not ", message)
    return re.sub(r"could not convert string to float: ", "a number is wanted, not ", message)
