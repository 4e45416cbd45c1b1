"""Triton kernels. Each module names its reference, which gives the same result where Triton does not run.

Callers ask `usable(x)` and import a kernel only then, because Triton may be missing. Nothing else imports Triton.

May import: errors, util.
"""

import contextlib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor

OLDEST = (3, 6)  # oldest version of Triton that the kernels are tested with


def _has_triton() -> bool:
    try:
        major, minor, *_ = version("triton").split(".")
    except PackageNotFoundError:
        return False
    return (int(major), int(minor)) >= OLDEST


HAS_TRITON = _has_triton()
_enabled = True


def runs_on(x: Tensor) -> bool:
    """Whether kernels run on this tensor."""
    return _enabled and HAS_TRITON and x.is_cuda


def usable(x: Tensor) -> bool:
    """Whether kernels run on this tensor, outside torch.compile, which fuses the reference itself."""
    return runs_on(x) and not torch.compiler.is_compiling()


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """Use the references instead of kernels inside."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before
