"""Files, and folders, that could not be read: listed in a file, and told in one line."""

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from hypersphere.util.files import write_atomically
from hypersphere.util.progress import counted, tell
from hypersphere.util.text import printable

_ESCAPES = {b"\\": rb"\\", b"\t": rb"\t", b"\n": rb"\n", b"\r": rb"\r"}
_PLAIN = {escape: plain for plain, escape in _ESCAPES.items()}


def tell_unreadable(
    unreadable: Mapping[Path | str, str], listed: Path, before: Mapping[Path | str, str] | None = None
) -> None:
    """Each with its reason, and those of `before`, into the file `listed`, some of them on standard error."""
    if unreadable:
        known = {os.fsencode(file): reason for file, reason in {**(before or {}), **unreadable}.items()}
        lines = [_escaped(file) + b"\t" + _escaped(reason) + b"\n" for file, reason in sorted(known.items())]
        write_atomically(listed, b"".join(lines))
        first = [(Path(file).name, reason) for file, reason in list(unreadable.items())[:3]]
        some = ", ".join(f"{_told(name)} ({_told(reason)})" for name, reason in first)
        more = ", …" if len(known) > 3 else ""
        tell(f"{_counted(known)} could not be read: {some}{more}; all are listed in {printable(listed)}")


def read_unreadable(listed: Path) -> dict[Path | str, str]:
    """What was listed there, by an earlier part of a run, say."""
    if not listed.is_file():
        return {}
    lines = (line.rpartition(b"\t") for line in listed.read_bytes().splitlines())
    return {os.fsdecode(_plain(file)): _plain(reason).decode("utf-8", "replace") for file, _, reason in lines}


def _counted(names: Collection[bytes]) -> str:
    """The names of folders end in a slash."""
    folders = sum(name.endswith(os.fsencode(os.sep)) for name in names)
    counts = {"file": len(names) - folders, "folder": folders}
    return " and ".join(counted(n, kind) for kind, n in counts.items() if n)


def _escaped(text: str | bytes) -> bytes:
    """In one line and one column, whatever it is made of."""
    return re.sub(rb"[\\\t\n\r]", lambda found: _ESCAPES[found[0]], os.fsencode(text))


def _told(text: str) -> str:
    return _escaped(text).decode("utf-8", "replace")


def _plain(text: bytes) -> bytes:
    return re.sub(rb"\\[\\tnr]", lambda found: _PLAIN[found[0]], text)
