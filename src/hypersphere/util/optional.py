"""Packages that only some functions need."""

from importlib import import_module
from typing import Any

from hypersphere.errors import UserError


def require(package: str, purpose: str, install: str = "") -> Any:
    """Import an optional package, or raise a UserError that says what `purpose` needs it, and how to install it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise UserError(f"{purpose} needs {error.name or package}: pip install {install or package}") from None
