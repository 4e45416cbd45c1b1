"""Cosines between all of many vectors, tile by tile: memory is linear in their number."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from hypersphere.errors import UserError
from hypersphere.util.console import Progress

ROWS, COLUMNS = 2048, 8192  # of a tile: 64 MiB
MOST_PAIRS = 5_000_000
SAMPLE = 2000  # vectors whose nearest neighbour gives the usual angle


def tiles(points: Tensor, above_diagonal: bool = False) -> Iterator[tuple[int, int, Tensor]]:
    """(first row, first column, cosines) of all tiles, row by row; a vector's cosine with itself is −inf.

    Args:
        points: Unit vectors of shape (N, D).
        above_diagonal: Whether to leave out tiles and entries on and below the diagonal.
    """
    for top in range(0, len(points), ROWS):
        rows = points[top : top + ROWS]
        for left in range(top // COLUMNS * COLUMNS if above_diagonal else 0, len(points), COLUMNS):
            cosines = (rows @ points[left : left + COLUMNS].T).clamp_(-1, 1)  # rounding may exceed it
            bottom, right = top + len(rows), left + cosines.shape[1]
            if left < bottom and top < right:  # the diagonal crosses it
                row = torch.arange(top, bottom, device=points.device).unsqueeze(1)
                column = torch.arange(left, right, device=points.device)
                cosines.masked_fill_(column <= row if above_diagonal else column == row, -math.inf)
            yield top, left, cosines


def close_pairs(points: Tensor, threshold: float, bar: Progress | None = None) -> tuple[Tensor, Tensor]:
    """Pairs of vectors with a cosine of at least `threshold`.

    Args:
        points: Unit vectors of shape (N, D).
        threshold: Smallest cosine.
        bar: Receives the number of vectors that are done.

    Returns:
        Indices (i < j) of shape (P, 2), and cosines of shape (P,), both on the CPU.

    Raises:
        UserError: If there are more than `MOST_PAIRS`.
    """
    pairs, cosines, count = [torch.zeros(0, 2, dtype=torch.int64)], [torch.zeros(0)], 0
    for top, left, tile in tiles(points, above_diagonal=True):
        found = (tile >= threshold).nonzero()
        pairs.append((found + torch.tensor([top, left], device=found.device)).cpu())
        cosines.append(tile[found[:, 0], found[:, 1]].cpu())
        if (count := count + len(found)) > MOST_PAIRS:
            raise UserError(
                f"more than {MOST_PAIRS:,} pairs have a cosine of at least {threshold:.4f}: raise `threshold`"
            )
        if bar is not None:
            bar.update(top)
    return torch.cat(pairs), torch.cat(cosines)


def nearest_cosines(points: Tensor, k: int, bar: Progress | None = None) -> Tensor:
    """Cosines of each vector with its k nearest others, largest first, of shape (N, k).

    Args:
        points: Unit vectors of shape (N, D).
        k: Number of neighbours, below N.
        bar: Receives the number of vectors that are done.
    """
    best = points.new_full((len(points), k), -math.inf)
    for top, _, tile in tiles(points):
        rows = slice(top, top + len(tile))
        both = torch.cat([best[rows], tile.topk(min(k, tile.shape[1]), dim=1).values], dim=1)
        best[rows] = both.topk(k, dim=1).values
        if bar is not None:
            bar.update(top)
    return best


def usual_nearest_angle(points: Tensor) -> float:
    """Median angle, in radians, of a vector to its nearest neighbour; of evenly chosen vectors if there are many."""
    chosen = torch.linspace(0, len(points) - 1, min(SAMPLE, len(points)), device=points.device).long()
    best = points.new_full((len(chosen),), -math.inf)
    for left in range(0, len(points), COLUMNS):
        cosines = points[chosen] @ points[left : left + COLUMNS].T
        others = chosen.unsqueeze(1) != torch.arange(left, left + cosines.shape[1], device=points.device)
        best = torch.maximum(best, cosines.masked_fill(~others, -math.inf).amax(dim=1))
    return float(best.clamp(-1, 1).arccos().median())
