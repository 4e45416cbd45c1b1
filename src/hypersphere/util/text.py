"""Text for people: what a terminal can show."""

import os
from pathlib import Path


def printable(text: Path | str) -> str:
    """A path or name as it can be printed, whatever bytes it is made of; control characters are spelled out."""
    decoded = os.fsencode(text).decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in decoded)
