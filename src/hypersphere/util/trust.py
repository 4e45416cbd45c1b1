"""Files that may name code to import and paths to read: those that the user wrote or trusts.

A run, an exported encoder or a file of embeddings may come from a stranger, and each can name Python code and paths of
images. We use these only if the user named the module (on the command line or in a call), wrote the file (a record in
the user's home has the hash of every such file), or trusts it (`--trust`, `trust=True`).
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypersphere.errors import UserError
from hypersphere.util.files import sha256_of
from hypersphere.util.references import allow, is_allowed, is_reference

_TRUSTED: set[Path] = set()  # files and folders that the user trusts, for the life of this process


def trust(path: str | os.PathLike[str]) -> None:
    """Trust a file, or all files in a folder, for the life of this process.

    Example:
        >>> trust("downloads/run")
        >>> is_trusted(Path("downloads/run/run.json"))
        True
    """
    _TRUSTED.add(Path(path).resolve())


def remember_own_file(file: Path) -> None:
    """Record that the user wrote a file, so that it is trusted from now on, wherever it is moved.

    Without a home folder that can be written, the user has to pass `trust` later.
    """
    with contextlib.suppress(OSError, RuntimeError):
        record = _record()
        record.parent.mkdir(parents=True, exist_ok=True)
        with open(record, "a") as lines:
            lines.write(f"{sha256_of(file)}\n")


def is_trusted(*files: Path) -> bool:
    """Whether the user wrote or trusts each of these files. A file that does not exist names nothing.

    Example:
        >>> is_trusted(Path("missing/run.json"))
        True
    """
    return all(
        not file.exists() or _TRUSTED & {file.resolve(), *file.resolve().parents} or _wrote(file) for file in files
    )


def check_code(file: Path, named: Mapping[str, Any], advice: str = "pass `trust` if you trust it") -> None:
    """Check that code which a file names may be imported, and allow its import.

    Args:
        file: The file.
        named: Values in it that may be references to code, by the names of their fields.
        advice: What to do if it is not trusted, for the error message.

    Raises:
        UserError: If the user neither named the module of a reference, nor wrote or trusts the file.
    """
    foreign = {field: name for field, name in named.items() if is_reference(name) and not is_allowed(name)}
    for field, name in foreign.items():
        if not is_trusted(file):
            raise UserError(f"{file}: its {field} is {name}, code that would be imported and run: {advice}")
        allow(name)


def _wrote(file: Path) -> bool:
    try:
        return sha256_of(file) in _record().read_text().split()
    except (OSError, RuntimeError, ValueError):
        return False


def _record() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "hypersphere" / "written-files"
