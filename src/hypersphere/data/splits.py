"""Splits as fixed lists: the same on every machine, for every seed of a run."""

import torch
from torch import Tensor

from hypersphere.draws import SPLIT, permutation


def balanced(labels: Tensor, per_class: int, seed: int = 0, stream: int = SPLIT) -> tuple[Tensor, Tensor]:
    """(the rest, `per_class` random samples of each class), as sorted indices; a label of −1 is no class."""
    order = permutation(len(labels), seed=seed, stream=stream)
    chosen = [order[labels[order] == c][:per_class] for c in labels.unique() if c >= 0]
    return _without(torch.cat(chosen), len(labels))


def drawn(n: int, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """(the rest, `count` random samples of n), as sorted indices."""
    return _without(permutation(n, seed=seed, stream=SPLIT)[:count], n)


def _without(held_out: Tensor, n: int) -> tuple[Tensor, Tensor]:
    rest = torch.ones(n, dtype=torch.bool)
    rest[held_out] = False
    return rest.nonzero().squeeze(1), held_out.sort().values
