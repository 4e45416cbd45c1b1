"""Embeddings of any number, a few rows at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hypersphere.errors import UserError

ROWS = 2**16  # of an array in memory, in one piece


@dataclass(frozen=True)
class Embeddings:
    """N × D numbers, from memory or from a file."""

    name: str
    rows: int
    dimensions: int
    pieces: Callable[[], Iterator[np.ndarray]]  # consecutive rows, from the start at each call


def of_array(x: np.ndarray, name: str = "embeddings") -> Embeddings:
    """Embeddings in memory.

    Args:
        x: Array of shape (N, D) with N and D at least 2.
        name: What messages call it.

    Raises:
        UserError: If it has another shape, or no numbers.
    """
    check_embeddings(x.shape, x.dtype, name)
    rows, dimensions = x.shape
    return Embeddings(name, rows, dimensions, lambda: (x[first : first + ROWS] for first in range(0, len(x), ROWS)))


def check_embeddings(shape: tuple[int, ...], dtype: Any, name: str) -> None:
    """Refuse an array that does not hold embeddings N × D."""
    if np.dtype(dtype).hasobject:
        raise UserError(f"{name} holds Python objects, perhaps rows of different lengths: expected N × D numbers")
    if np.dtype(dtype).kind not in "iuf":
        raise UserError(f"{name} holds {dtype}: expected numbers")
    if len(shape) != 2 or min(shape) < 2:
        raise UserError(f"{name} has shape {shape}: expected N × D with at least two rows and two columns")
