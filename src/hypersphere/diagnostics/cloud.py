"""Many points in one pass: what holds of all of them, and a sample for what needs pairs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor

from hypersphere.diagnostics.embeddings import Embeddings
from hypersphere.errors import UserError
from hypersphere.sphere import unit
from hypersphere.util.draws import SAMPLE, permutation
from hypersphere.util.intervals import half_width

ALL_PAIRS = 4096  # points of which every pair is looked at
GROUPS, GROUP = 8, 2048  # of more points: pairs within groups of a sample


class Measured(NamedTuple):
    """A number, and the half-width of its 95 % interval where it comes from a sample."""

    value: float
    half_width: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.4g}" if self.half_width is None else f"{self.value:.4g} ± {self.half_width:.2g}"


@dataclass(frozen=True)
class Cloud:
    """Points of which `sample` (in random order) is kept; `std` is of the unit vectors of all. Rows of zeros, which
    have no direction, are counted, and that is all."""

    rows: int
    sample: Tensor
    std: Tensor
    zeros: int

    @property
    def dimensions(self) -> int:
        return self.sample.shape[1]

    @property
    def sampled(self) -> bool:
        return self.rows > GROUPS * GROUP

    @property
    def groups(self) -> list[Tensor]:
        """Whose pairs are looked at."""
        return [self.sample] if len(self.sample) <= ALL_PAIRS else list(self.sample.chunk(GROUPS))

    def measure(self, of_pairs: Callable[[Tensor], Tensor]) -> Measured:
        """A mean over pairs: of all, or the mean over the groups with its t-interval."""
        found = [float(of_pairs(group)) for group in self.groups]
        return Measured(fmean(found), half_width(found) if len(found) > 1 else None)


def distinct(x: Tensor) -> Tensor:
    """Directions without copies, of which one pair outweighs the energy of a thousand points; with them, where they are
    many."""
    different = torch.unique(unit(x), dim=0)
    return different if len(different) >= 0.9 * len(x) else x


def gather(points: Embeddings, seed: int = 0) -> Cloud:
    """Reads all rows once. A row that holds no finite number is an error, said with its place."""
    kept = _chosen(points.rows, seed)
    total, squares = torch.zeros(2, points.dimensions, dtype=torch.float64)
    zeros, parts, first = 0, [], 0
    for rows in _tensors(points):
        _check_finite(rows, first, points.name)
        directions, alive = unit(rows).double(), (rows != 0).any(dim=1)
        total += directions.sum(0)
        squares += directions.square().sum(0)
        zeros += int((~alive).sum())
        mine = kept[(kept >= first) & (kept < first + len(rows))] - first
        parts.append(rows[mine[alive[mine]]])
        first += len(rows)
    directed = max(1, first - zeros)
    mean = total / directed
    std = (squares / directed - mean**2).clamp(min=0).sqrt()
    sample = torch.cat(parts)
    sample = sample[permutation(len(sample), seed=seed, stream=SAMPLE)]
    return Cloud(first, sample, std, zeros)


def _chosen(rows: int, seed: int) -> Tensor:
    """Which rows are kept, in order."""
    wanted = GROUPS * GROUP
    if rows <= wanted:
        return torch.arange(rows)
    return permutation(rows, seed=seed, stream=SAMPLE)[:wanted].sort().values


def _tensors(points: Embeddings) -> Iterator[Tensor]:
    import numpy as np

    for piece in points.pieces():
        wide = np.float64 if piece.dtype == np.float64 else np.float32
        yield torch.from_numpy(np.array(piece, dtype=wide, order="C")).float()


def _check_finite(rows: Tensor, first: int, name: str) -> None:
    bad = (~torch.isfinite(rows)).any(dim=1).nonzero()
    if len(bad):
        raise UserError(
            f"{name}: row {first + int(bad[0])} (counted from 0) holds NaN, infinity or a number beyond float32; "
            "leave such rows out"
        )
