"""A user's mistake, or the world's: told in one line, without a traceback at the command line.

Messages name options as Python does, in backticks (`micro_batch`); the command line shows them as its own.
"""

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator


class UserError(ValueError):
    joint = False  # whether it was told while the processes of a job worked together: before, all make the same mistake


class Diverged(UserError):
    """A run whose loss is no number any more."""


class Collapsed(UserError):
    """A run whose features are all but one point, and that was to stop then."""


class RunsFailed(UserError):
    """Some of many runs, when the others are done."""

    status = 1  # of the command; that of another mistake is 2


class Elsewhere(UserError):
    """What another process of the job tells: this one ends without a word."""


@contextlib.contextmanager
def refusals_told() -> Iterator[None]:
    """A path that one may not enter is a user's mistake: wherever it is met first, even in asking whether it exists."""
    try:
        yield
    except PermissionError as error:
        if error.filename is None:  # of no file
            raise
        told = f"permission denied for {error.filename}, or for a folder above it"
        raise UserError(f"{told}: choose another, or have its owner let you in") from None


def with_dashes(message: str) -> str:
    """As the command line says it: `micro_batch` → --micro-batch"""
    return re.sub(r"`(\w+)`", lambda option: "--" + option[1].replace("_", "-"), message)


def first_line(error: BaseException) -> str:
    """What it says, in few words; its kind where that is nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:120]


def closest(name: str, names: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, list(names), n=1)), None)


def similar(name: str, names: Iterable[str]) -> str:
    close = closest(name, names)
    return f": did you mean {close!r}?" if close else ""
