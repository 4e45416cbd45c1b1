"""What users bring along: code, by where it can be imported from (`package.module:name`), and files of arrays."""

import importlib
import os
import re
import sys
from typing import Any

from hypersphere.errors import UserError, similar

_REFERENCE = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


def is_reference(name: Any) -> bool:
    return isinstance(name, str) and _REFERENCE.fullmatch(name) is not None


def is_arrays(data: Any) -> bool:
    """Names images as arrays: by a file of them, or by a function that makes them."""
    return isinstance(data, str) and (data.endswith((".npz", ".npy")) or is_reference(data))


def reference_to(thing: Any) -> str | None:
    """How a function or class can be found again; None for what is neither, or stands in another function."""
    name, module = getattr(thing, "__qualname__", "<"), getattr(thing, "__module__", None)
    reference = f"{module}:{name}"
    return reference if callable(thing) and is_reference(reference) else None


def referred_to(reference: str) -> Any:
    """Imported, from the current folder too."""
    module_name, _, path = reference.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # of what it imports itself
        raise UserError(f"{reference}: there is no module {error.name} in this folder or on Python's path") from None
    for name in path.split("."):
        if not hasattr(found, name):
            script = " (the script that was started)" if module_name == "__main__" else ""
            raise UserError(f"{reference}: there is no {name} in {module_name}{script}{similar(name, dir(found))}")
        found = getattr(found, name)
    return found
