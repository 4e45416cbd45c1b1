"""Text for people: what a terminal can show."""

import os
from collections.abc import Sequence
from pathlib import Path


def printable(text: Path | str) -> str:
    """A path or name as it can be printed, whatever bytes it is made of; control characters are spelled out."""
    decoded = os.fsencode(text).decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in decoded)


def some_of(names: Sequence[str], most: int = 3) -> str:
    """The first few names, with … if there are more.

    Example:
        >>> some_of(["a", "b", "c"], most=2)
        'a, b, …'
    """
    return ", ".join(names[:most]) + ", …" * (len(names) > most)
