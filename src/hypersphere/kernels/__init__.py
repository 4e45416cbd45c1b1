"""Triton kernels, each beside the name of its reference, which runs wherever Triton does not."""

import contextlib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor

OLDEST = (3, 6)  # Triton's version that the kernels are tested with


def _has_triton() -> bool:
    try:
        major, minor, *_ = version("triton").split(".")
    except PackageNotFoundError:
        return False
    return (int(major), int(minor)) >= OLDEST


HAS_TRITON = _has_triton()
_wanted = True


def runs_on(x: Tensor) -> bool:
    """Do kernels run on this tensor?"""
    return _wanted and HAS_TRITON and x.is_cuda


def usable(x: Tensor) -> bool:
    """The same, but not while torch.compile traces: it fuses the reference by itself."""
    return runs_on(x) and not torch.compiler.is_compiling()


@contextlib.contextmanager
def references_alone() -> Iterator[None]:
    """No kernels inside: what they are compared with."""
    global _wanted
    before, _wanted = _wanted, False
    try:
        yield
    finally:
        _wanted = before
