"""Errors whose message alone tells the user what to change; the command line prints them without a traceback.

Messages quote options as Python names in backticks (`micro_batch`); the command line prints them as `--micro-batch`.
"""

import contextlib
import difflib
import errno
import re
from collections.abc import Collection, Iterable, Iterator


class UserError(ValueError):
    """A mistake in the input or the environment, which the user can correct.

    Attributes:
        joint: Whether the error was raised while the processes of a job worked together. Before that, every process
            makes the same mistake, so only the first one prints it.

    Example:
        >>> try:
        ...     hs.pretrain("bylo", data="digits")
        ... except hs.UserError as error:
        ...     print(str(error)[:22])
        unknown method 'bylo':
    """

    joint = False


class Diverged(UserError):
    """The loss of a run is no longer finite."""


class Collapsed(UserError):
    """The features of a run have collapsed to nearly one point, and the run was set to stop then."""


class RunsFailed(UserError):
    """Some runs of a sweep failed; the others are finished."""

    status = 1  # exit status of the command; other user errors exit with 2


class ReportedElsewhere(UserError):
    """Another process of the job reports the error, so this one exits silently."""


@contextlib.contextmanager
def path_errors_as_user_errors() -> Iterator[None]:
    """Turn errors about a path into a `UserError`: no permission, or a name that the system does not take."""
    try:
        yield
    except PermissionError as error:
        if error.filename is None:  # not about a file
            raise
        denied = f"permission denied for {error.filename}, or for a folder above it"
        raise UserError(f"{denied}: choose another path, or ask its owner for access") from None
    except OSError as error:
        if error.errno not in (errno.ENAMETOOLONG, errno.ELOOP):
            raise
        raise UserError(f"{str(error.filename)[:60]}…: {error.strerror}") from None


def as_command_line(message: str, arguments: Collection[str] = ()) -> str:
    """Rewrite option names for the command line.

    Args:
        message: Text with option names in backticks.
        arguments: Positional arguments of the command, such as IMAGES, which are no options.

    Example:
        >>> as_command_line("`micro_batch` must divide `batch`")
        '--micro-batch must divide --batch'
        >>> as_command_line("`images` and `labels` do not match", {"IMAGES"})
        'IMAGES and --labels do not match'
    """

    def rewrite(quoted: re.Match[str]) -> str:
        name = quoted[1].upper()
        return name if name in arguments else "--" + quoted[1].replace("_", "-")

    return re.sub(r"`(\w+)`", rewrite, message)


def first_line(error: BaseException) -> str:
    """First line of an error's message, at most 120 characters; its class name if it has no message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:120]


def closest_name(name: str, names: Iterable[str]) -> str | None:
    """The most similar of `names`, or None if no name is similar enough."""
    return next(iter(difflib.get_close_matches(name, list(names), n=1)), None)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """End of an error message about an unknown name.

    Example:
        >>> did_you_mean("bjol", ["byol", "simclr"])
        ": did you mean 'byol'?"
    """
    close = closest_name(name, names)
    return f": did you mean {close!r}?" if close else ""
