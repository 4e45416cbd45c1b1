"""Splits as fixed lists: the same on every machine, for every seed of a run."""

import torch
from torch import Tensor

from hypersphere.draws import SPLIT, permutation
from hypersphere.errors import UserError


def balanced(labels: Tensor, per_class: int, seed: int = 0, stream: int = SPLIT) -> tuple[Tensor, Tensor]:
    """(the rest, `per_class` random samples of each class), as sorted indices; a label of −1 is no class."""
    order = permutation(len(labels), seed=seed, stream=stream)
    chosen = [order[labels[order] == c][:per_class] for c in labels.unique() if c >= 0]
    return _without(torch.cat(chosen), len(labels))


def drawn(n: int, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """(the rest, `count` random samples of n), as sorted indices."""
    return _without(permutation(n, seed=seed, stream=SPLIT)[:count], n)


ENOUGH_HELD_OUT = 500  # of labelled images, and a tenth of that of each class
MOST_WATCHED = 5_000  # of images without labels


def held_out_of(labels: Tensor | None, n: int) -> tuple[Tensor, Tensor]:
    """(the rest, a share), of sets that come without a split: as many of each class, or, where a class has but one
    image, of all. Without labels nothing is held out: some are looked at all the same."""
    if labels is None or not (labels >= 0).any():
        return torch.arange(n), permutation(n, seed=0, stream=SPLIT)[:MOST_WATCHED].sort().values
    counts = labels[labels >= 0].bincount()
    least, classes = int(counts[counts > 0].min()), int((counts > 0).sum())
    if least > 1 and classes > 1:
        rest, some = balanced(labels, share_held_out(least, ENOUGH_HELD_OUT // 10))
    else:
        rest, some = drawn(n, max(2, share_held_out(n, ENOUGH_HELD_OUT)))
    if len(rest) < 2:
        raise UserError("images with labels must be four or more, to hold two out")
    return rest, some


def share_held_out(images: int, enough: int) -> int:
    """One in twenty; of few images one in five, for an accuracy of a handful says nothing."""
    return max(1, images // 20, min(images // 5, enough))


def _without(held_out: Tensor, n: int) -> tuple[Tensor, Tensor]:
    rest = torch.ones(n, dtype=torch.bool)
    rest[held_out] = False
    return rest.nonzero().squeeze(1), held_out.sort().values
