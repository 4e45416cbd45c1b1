"""Matrix products in full float32, whatever precision the user has set for others."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from hypersphere.sphere.unit import without_autocast

_IS_BY_BACKEND = hasattr(torch.backends.cuda.matmul, "fp32_precision")  # torch ≥ 2.9; before, one global setting


@contextlib.contextmanager
def full_precision(x: Tensor) -> Iterator[None]:
    """Disable autocast and TF32 for the products inside."""
    with without_autocast(x), _ieee_precision:
        yield


class _IeeePrecision:
    """IEEE precision for the whole process: the first thread inside saves the setting, the last one restores it."""

    def __init__(self) -> None:
        self._lock, self._inside, self._saved = threading.Lock(), 0, [""]

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._saved = _settings()
                _set(["ieee" if _IS_BY_BACKEND else "highest"] * len(self._saved))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                _set(self._saved)


_ieee_precision = _IeeePrecision()


def _backends() -> tuple[Any, ...]:
    return torch.backends.cuda.matmul, torch.backends.mkldnn.matmul  # type: ignore[attr-defined]


def _settings() -> list[str]:
    if _IS_BY_BACKEND:
        return [backend.fp32_precision for backend in _backends()]
    return [torch.get_float32_matmul_precision()]


def _set(precisions: list[str]) -> None:
    if not _IS_BY_BACKEND:
        torch.set_float32_matmul_precision(precisions[0])
        return
    for backend, precision in zip(_backends(), precisions, strict=True):
        backend.fp32_precision = precision
