"""The last line of a command: what to do next."""

import shlex
from pathlib import Path


def print_next(command: str, *arguments: str | Path) -> None:
    """Print a command to run next; arguments in capitals are for the user to fill in.

    Example:
        >>> print_next("evaluate", Path("runs/my run"))
        next: hypersphere evaluate 'runs/my run'
    """
    print("next: hypersphere", command, *(shlex.quote(str(argument)) for argument in arguments))
