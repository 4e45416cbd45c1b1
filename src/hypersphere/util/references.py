"""Importing user code by reference, such as `package.module:name`."""

import functools
import importlib
import inspect
import os
import re
import sys
from typing import Any, TypeVar

from hypersphere.errors import UserError, did_you_mean
from hypersphere.util.files import sha256_of

K = TypeVar("K")
_ALLOWED: set[str] = set()  # modules of which files may name code
_REFERENCE = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


def is_reference(name: Any) -> bool:
    """Whether a name has the form `package.module:name`.

    Example:
        >>> is_reference("my_package.nets:Small"), is_reference("torchvision/resnet18")
        (True, False)
    """
    return isinstance(name, str) and _REFERENCE.fullmatch(name) is not None


def reference_to(thing: Any) -> str | None:
    """Reference by which a function or class can be imported; None if it cannot (methods, local functions, lambdas).

    Example:
        >>> from collections import OrderedDict
        >>> reference_to(OrderedDict)
        'collections:OrderedDict'
    """
    name, module = getattr(thing, "__qualname__", "<"), getattr(thing, "__module__", None)
    reference = f"{module}:{name}"
    if not callable(thing) or not is_reference(reference):
        return None
    found: Any = sys.modules.get(str(module))
    for part in name.split("."):
        found = getattr(found, part, None)
    return reference if found is thing else None


def allow(reference: str) -> None:
    """Allow files to name code in the module of a reference, in this process."""
    _ALLOWED.add(reference.partition(":")[0])


def is_allowed(reference: str) -> bool:
    """Whether files may name code in the module of a reference, since the user named it or trusts such a file."""
    return reference.partition(":")[0] in _ALLOWED


def import_reference(reference: str) -> Any:
    """Import what a reference names, from Python's path or the current folder.

    A reference in a file must be checked first: `hypersphere.util.trust.check_code`.

    Raises:
        UserError: If there is no such module or name, or the module has a syntax error.

    Example:
        >>> import_reference("math:sqrt")(9.0)
        3.0
    """
    module_name, _, path = reference.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module itself imports something that is missing
        raise UserError(f"{reference}: there is no module {error.name} in this folder or on Python's path") from None
    except SyntaxError as error:
        where = f"{error.filename}, line {error.lineno}"
        raise UserError(f"{reference}: syntax error in {module_name}: {error.msg} ({where})") from None
    for name in path.split("."):
        if not hasattr(found, name):
            script = " (the script that was started)" if module_name == "__main__" else ""
            raise UserError(f"{reference}: there is no {name} in {module_name}{script}{did_you_mean(name, dir(found))}")
        found = getattr(found, name)
    allow(reference)
    return found


def import_subclass(reference: str, base: type[K], duty: str, needs: set[str]) -> type[K]:
    """Import a subclass of `base`.

    Args:
        reference: Reference to the class.
        base: Class that it must inherit from.
        duty: Methods that it must implement, for the error message.
        needs: Arguments that its `__init__` must accept.

    Raises:
        UserError: If it is not such a class.
    """
    kind = import_reference(reference)
    if not inspect.isclass(kind) or not issubclass(kind, base):
        raise UserError(f"{reference} must be a subclass of {base.__module__.rpartition('.')[0]}.{base.__name__}")
    if inspect.isabstract(kind):
        raise UserError(f"{reference} must implement {duty}")
    if lacking := needs - set(inspect.signature(kind.__init__).parameters):
        raise UserError(f"{reference}: its __init__ must take {' and '.join(sorted(lacking))}")
    return kind


def edition(written: str) -> str:
    """First digits of the SHA-256 hash of a file, or of the source file of a reference."""
    file: str | None = written
    if is_reference(written):
        import_reference(written)
        file = getattr(sys.modules[written.partition(":")[0]], "__file__", None)
    return "here" if file is None else _digest(file, os.stat(file).st_mtime_ns)


@functools.cache
def _digest(file: str, changed: int) -> str:
    """`changed` is the time of the last change, so that a changed file is read again."""
    return sha256_of(file)[:8]
