"""Statistics of any number of embeddings in one pass, and a sample of them for measures of pairs."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hypersphere.diagnostics.embeddings import Embeddings
from hypersphere.errors import UserError
from hypersphere.sphere import unit
from hypersphere.util.random_numbers import SAMPLE, permutation
from hypersphere.util.statistics import Estimate, estimate

ALL_PAIRS = 4096  # up to this many points, every pair counts
GROUPS, GROUP = 8, 2048  # of more points: pairs within groups of a random sample


@dataclass(frozen=True)
class Cloud:
    """Summary of N × D embeddings.

    Attributes:
        rows: N.
        sample: Up to `GROUPS * GROUP` rows in random order, without rows of zeros, which have no direction.
        std: Standard deviation of each coordinate of the unit vectors of all rows.
        zeros: Number of rows of zeros.
    """

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
        """Parts of the sample. Measures of pairs take pairs within a part."""
        return [self.sample] if len(self.sample) <= ALL_PAIRS else list(self.sample.chunk(GROUPS))

    def measure(self, of_pairs: Callable[[Tensor], Tensor]) -> Estimate:
        """A mean over pairs: exact for one group, else the mean over the groups with its t-interval."""
        found = estimate([float(of_pairs(group)) for group in self.groups])
        assert found is not None
        return found


def without_duplicates(x: Tensor) -> Tensor:
    """Distinct directions of some points, since one duplicate pair outweighs the energy of a thousand points.

    All points if more than a tenth are duplicates.
    """
    distinct = torch.unique(unit(x), dim=0)
    return distinct if len(distinct) >= 0.9 * len(x) else x


def summarize(points: Embeddings, seed: int = 0) -> Cloud:
    """Read all embeddings once.

    Raises:
        UserError: If a row is not finite in float32.
    """
    kept = _chosen_rows(points.rows, seed)
    total, squares = torch.zeros(2, points.dimensions, dtype=torch.float64)
    zeros, parts, first = 0, [], 0
    for piece in points.pieces():
        rows = torch.from_numpy(piece.astype(np.float64 if piece.dtype == np.float64 else np.float32)).float()
        _check_finite(rows, first, points.name)
        directions, nonzero = unit(rows).double(), (rows != 0).any(dim=1)
        total += directions.sum(0)
        squares += directions.square().sum(0)
        zeros += int((~nonzero).sum())
        here = kept[(kept >= first) & (kept < first + len(rows))] - first
        parts.append(rows[here[nonzero[here]]])
        first += len(rows)
    directed = max(1, first - zeros)
    std = (squares / directed - (total / directed) ** 2).clamp(min=0).sqrt()
    sample = torch.cat(parts)
    return Cloud(first, sample[permutation(len(sample), seed=seed, stream=SAMPLE)], std, zeros)


def _chosen_rows(rows: int, seed: int) -> Tensor:
    """Indices of the sample, ascending."""
    if rows <= GROUPS * GROUP:
        return torch.arange(rows)
    return permutation(rows, seed=seed, stream=SAMPLE)[: GROUPS * GROUP].sort().values


def _check_finite(rows: Tensor, first: int, name: str) -> None:
    bad = (~torch.isfinite(rows)).any(dim=1).nonzero()
    if len(bad):
        row = first + int(bad[0])
        raise UserError(f"{name}: row {row} (counted from 0) has NaN, infinity or a number beyond float32: remove it")
