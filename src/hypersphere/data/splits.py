"""Class-balanced splits as fixed lists: the same on every machine, for every seed of a run."""

import torch
from torch import Tensor

from hypersphere.draws import SPLIT, permutation


def balanced(labels: Tensor, per_class: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """(the rest, `per_class` random samples of each class), as sorted indices."""
    order = permutation(len(labels), seed=seed, stream=SPLIT)
    chosen = [order[labels[order] == c][:per_class] for c in labels.unique()]
    held_out = torch.cat(chosen).sort().values
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[held_out] = False
    return rest.nonzero().squeeze(1), held_out
