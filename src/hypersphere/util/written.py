"""Code of the user's, by where it can be imported from: `package.module:name`."""

import functools
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from typing import Any, TypeVar

from hypersphere.errors import UserError, similar

K = TypeVar("K")
_ADDED: list[str] = []  # to Python's path: the very entries, as a user may add the same folders
_REFERENCE = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


def is_reference(name: Any) -> bool:
    return isinstance(name, str) and _REFERENCE.fullmatch(name) is not None


def reference_to(thing: Any) -> str | None:
    """How a function or class can be found again; None for what cannot: methods, what stands in another function, …"""
    name, module = getattr(thing, "__qualname__", "<"), getattr(thing, "__module__", None)
    reference = f"{module}:{name}"
    if not callable(thing) or not is_reference(reference):
        return None
    found: Any = sys.modules.get(str(module))
    for part in name.split("."):
        found = getattr(found, part, None)
    return reference if found is thing else None


def check_installed(reference: Any) -> None:
    """A file that names code must not get it from the folder that one happens to be in."""
    if not is_reference(reference):
        return
    module = reference.partition(":")[0]
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        raise UserError(f"{reference}: Python's own modules have no networks")
    if module not in sys.modules and not _is_installed(top):
        advice = "import it first, or put its folder on PYTHONPATH, if you trust it"
        raise UserError(f"{reference}: there is no module {module} on Python's path: {advice}")


def _is_installed(module: str) -> bool:
    """Whether Python finds it without the folders that `referred_to` has added."""
    path = sys.path[:]
    try:
        sys.path[:] = [folder for folder in path if not any(folder is ours for ours in _ADDED)]
        return importlib.util.find_spec(module) is not None
    finally:
        sys.path[:] = path


def referred_to(reference: str) -> Any:
    """Imported, from the current folder too."""
    module_name, _, path = reference.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        _ADDED.append(os.getcwd())
        sys.path.append(_ADDED[-1])
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # of what it imports itself
        raise UserError(f"{reference}: there is no module {error.name} in this folder or on Python's path") from None
    except SyntaxError as error:
        told = f"{error.filename}, line {error.lineno}: {error.msg}"
        raise UserError(f"{reference}: there is a mistake in {module_name} ({told})") from None
    for name in path.split("."):
        if not hasattr(found, name):
            script = " (the script that was started)" if module_name == "__main__" else ""
            raise UserError(f"{reference}: there is no {name} in {module_name}{script}{similar(name, dir(found))}")
        found = getattr(found, name)
    return found


def class_at(reference: str, base: type[K], duty: str, needs: set[str]) -> type[K]:
    """A subclass of the base that does its duty, and whose __init__ takes what it will be given."""
    kind = referred_to(reference)
    if not inspect.isclass(kind) or not issubclass(kind, base):
        raise UserError(f"{reference} must be a subclass of {base.__module__.rpartition('.')[0]}.{base.__name__}")
    if inspect.isabstract(kind):
        raise UserError(f"{reference} has no {duty}")
    if lacking := needs - set(inspect.signature(kind.__init__).parameters):
        raise UserError(f"{reference}: its __init__ must take {' and '.join(sorted(lacking))}")
    return kind


def edition(written: str) -> str:
    """Of a file of arrays, or the file that code stands in: the first digits of its hash."""
    file: str | None = written
    if is_reference(written):
        referred_to(written)
        file = getattr(sys.modules[written.partition(":")[0]], "__file__", None)
    return "here" if file is None else _digest(file, os.stat(file).st_mtime_ns)


@functools.cache
def _digest(file: str, changed: int) -> str:
    """`changed`: when, so that it is read again then."""
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:8]
