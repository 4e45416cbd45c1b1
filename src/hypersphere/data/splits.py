"""Splits as fixed lists: the same on every machine, for every seed of a run."""

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor

from hypersphere.errors import UserError
from hypersphere.util.draws import SPLIT, permutation
from hypersphere.util.progress import tell_once

Part = TypeVar("Part")

# name of a part of a split, in lower case → which it is
PARTS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val"}
PARTS |= {"test": "test", "testing": "test"}


def balanced(labels: Tensor, per_class: int, seed: int = 0, stream: int = SPLIT) -> tuple[Tensor, Tensor]:
    """(the rest, `per_class` random samples of each class), as sorted indices; a label of −1 is no class."""
    return of_each_class(labels, torch.full_like(_counts(labels), per_class), seed, stream)


def of_each_class(labels: Tensor, shares: Tensor, seed: int = 0, stream: int = SPLIT) -> tuple[Tensor, Tensor]:
    """The same, with as many of class c as shares[c] says."""
    order = permutation(len(labels), seed=seed, stream=stream)
    order = order[labels[order] >= 0]
    by_class = order[labels[order].argsort(stable=True)]
    classes, counts = labels[by_class], _counts(labels)
    rank = torch.arange(len(by_class)) - (counts.cumsum(0) - counts)[classes]
    return _without(by_class[rank < shares[classes]], len(labels))


def _counts(labels: Tensor) -> Tensor:
    return labels[labels >= 0].bincount()


def drawn(n: int, count: int) -> tuple[Tensor, Tensor]:
    """(the rest, `count` random samples of n), as sorted indices."""
    return _without(permutation(n, seed=0, stream=SPLIT)[:count], n)


def evenly(n: int, count: int) -> Tensor:
    """Indices of `count` of n, or of all; the first and the last among them."""
    count = min(n, count)
    return torch.arange(count) * (n - 1) // max(1, count - 1)


ENOUGH_HELD_OUT = 500  # of labelled images, and a tenth of that of each class
MOST_WATCHED = 5_000  # of images without labels


def test_of(parts: Mapping[str, Part], data: str, wanted: str) -> Part:
    """Where there is none, what options are chosen with."""
    if "test" in parts:
        return parts["test"]
    if "val" not in parts:
        raise UserError(f"{data} has no test set: it would be {wanted}")
    tell_once(f"{data} has no test set: its val set stands for it")
    return parts["val"]


def held_out_of(labels: Tensor | None, n: int, groups: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(the rest, a share), of sets that come without a split: of each class that has two images by how many it has, or
    whole groups. Without labels nothing is held out: some are looked at all the same."""
    if labels is None or not (labels >= 0).any():
        return torch.arange(n), permutation(n, seed=0, stream=SPLIT)[:MOST_WATCHED].sort().values
    if groups is not None:
        return _whole_groups(labels, groups)
    counts, known = _counts(labels), (labels >= 0).nonzero().squeeze(1)
    enough = ENOUGH_HELD_OUT // 10 if (counts > 0).sum() > 1 else ENOUGH_HELD_OUT
    shares = torch.tensor([share_held_out(count, enough) if count > 1 else 0 for count in counts.tolist()])
    if shares.sum() == 1 and counts.max() >= 4:
        shares[counts.argmax()] = 2
    if shares.sum() < 2:
        if (counts < 2).all():
            tell_once("no class has two images: by such labels nothing can be measured")
        _, places = drawn(len(known), max(2, share_held_out(len(known), ENOUGH_HELD_OUT)))
        rest, some = _without(known[places], n)
    else:
        if alone := int((counts == 1).sum()):
            tell_once(f"of {int((counts > 0).sum()):,} classes {alone:,} have one image alone, which is learnt from")
        rest, some = of_each_class(labels, shares)
    if len(known) - len(some) < 2:
        raise UserError(f"{len(known)} images have labels: it takes four or more, to hold two out, or none")
    return rest, some


def _whole_groups(labels: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """In a drawn order, groups that have a class of which too few are held out yet, and of none more than are wanted;
    then, the smallest first, larger ones, of classes that have none held out. Of each class a group is left."""
    counts = torch.zeros(int(groups.max()) + 1, int(labels.max()) + 1, dtype=torch.int64)
    known = labels >= 0
    counts.index_put_((groups[known], labels[known]), torch.tensor(1), accumulate=True)
    wanted = torch.tensor([share_held_out(n, ENOUGH_HELD_OUT // 10) if n else 0 for n in counts.sum(0).tolist()])
    held_out, chosen = torch.zeros_like(wanted), []
    others = (counts > 0).sum(0) - 1  # groups that have a class beside the one looked at
    order = permutation(len(counts), seed=0, stream=SPLIT).tolist()
    small = [(group, wanted) for group in order if (counts[group] <= wanted).all()]
    large = [(group, wanted.clamp(max=1)) for group in order if (counts[group] > wanted).any()]
    large.sort(key=lambda each: (int(counts[each[0]].sum()), each[0]))
    for group, enough in (*small, *large):
        has = counts[group] > 0
        if (held_out < enough)[has].any() and (others > 0)[has].all():
            chosen.append(group)
            held_out += counts[group]
            others -= has.long()
    if not chosen:
        raise UserError("no group can be held out: each is the only one that has some class")
    return _without(torch.isin(groups, torch.tensor(chosen)).nonzero().squeeze(1), len(labels))


def share_held_out(images: int, enough: int) -> int:
    """One in twenty; of few images one in five, for an accuracy of a handful says nothing."""
    return max(1, images // 20, min(images // 5, enough))


def _without(held_out: Tensor, n: int) -> tuple[Tensor, Tensor]:
    rest = torch.ones(n, dtype=torch.bool)
    rest[held_out] = False
    return rest.nonzero().squeeze(1), held_out.sort().values
