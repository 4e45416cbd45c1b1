"""Report files and folders that could not be read: all in a .tsv file, and one line on standard error."""

import contextlib
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from hypersphere.errors import UserError
from hypersphere.util.console import notify, pluralize
from hypersphere.util.files import write_atomically
from hypersphere.util.text import printable

UNREADABLE = "unreadable.tsv"  # in the folder of a run or of a classifier
_ESCAPES = {b"\\": rb"\\", b"\t": rb"\t", b"\n": rb"\n", b"\r": rb"\r"}
_PLAIN = {escape: plain for plain, escape in _ESCAPES.items()}


def report_unreadable(
    unreadable: Mapping[Path | str, str], listed: Path | None = None, before: Mapping[Path | str, str] | None = None
) -> None:
    """Print the first unreadable files, and write all, and those of `before`, with their reasons to `listed`."""
    if unreadable:
        known = {os.fsencode(file): reason for file, reason in {**(before or {}), **unreadable}.items()}
        first = [(Path(file).name, reason) for file, reason in list(unreadable.items())[:3]]
        examples = ", ".join(f"{_shown(name)} ({_shown(reason)})" for name, reason in first)
        where = ""
        if listed is not None:
            lines = [_escaped(file) + b"\t" + _escaped(reason) + b"\n" for file, reason in sorted(known.items())]
            write_atomically(listed, b"".join(lines))
            where = f"; see {printable(listed)} for the full list"
        notify(f"{_counted(known)} could not be read: {examples}{', …' if len(known) > 3 else ''}{where}")


def replace_unreadable(unreadable: Mapping[Path | str, str], listed: Path) -> None:
    """As `report_unreadable`, but the list of an earlier call is removed if everything can be read."""
    with contextlib.suppress(OSError):
        listed.unlink()
    report_unreadable(unreadable, listed)


def none_readable(count: int, unreadable: dict[Path | str, str]) -> UserError:
    """The error if none of `count` images could be read, with the last reason: folders come first."""
    path, reason = next(reversed(unreadable.items()), ("one", "no reason is known"))
    return UserError(f"none of {count} images could be read, such as {printable(path)} ({reason})")


def unreadable_in(listed: Path) -> dict[Path | str, str]:
    """The files that `report_unreadable` listed earlier, such as before a resume."""
    if not listed.is_file():
        return {}
    lines = (line.rpartition(b"\t") for line in listed.read_bytes().splitlines())
    return {os.fsdecode(_plain(file)): _plain(reason).decode("utf-8", "replace") for file, _, reason in lines}


def _counted(names: Collection[bytes]) -> str:
    """The number of files and folders; names of folders end in a slash."""
    folders = sum(name.endswith(os.fsencode(os.sep)) for name in names)
    counts = {"file": len(names) - folders, "folder": folders}
    return " and ".join(pluralize(n, kind) for kind, n in counts.items() if n)


def _escaped(text: str | bytes) -> bytes:
    """The text with tabs, line breaks and backslashes escaped."""
    return re.sub(rb"[\\\t\n\r]", lambda found: _ESCAPES[found[0]], os.fsencode(text))


def _shown(text: str) -> str:
    return _escaped(text).decode("utf-8", "replace")


def _plain(text: bytes) -> bytes:
    return re.sub(rb"\\[\\tnr]", lambda found: _PLAIN[found[0]], text)
