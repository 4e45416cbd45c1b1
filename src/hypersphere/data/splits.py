"""Train and held-out splits: fixed index lists, the same on every machine and for every seed of a run."""

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor

from hypersphere.errors import UserError
from hypersphere.util.console import notify_once
from hypersphere.util.random_numbers import SPLIT, permutation

Part = TypeVar("Part")

# lower-case name of a split → its standard name
PARTS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val"}
PARTS |= {"test": "test", "testing": "test"}


def balanced(labels: Tensor, per_class: int, seed: int = 0, stream: int = SPLIT) -> tuple[Tensor, Tensor]:
    """Choose the same number of random samples of each class.

    Args:
        labels: Tensor of shape (N,), int64. Samples with label −1 (unknown) are never chosen.
        per_class: Samples to choose of each class. If a class has fewer, all of them are chosen.
        seed: Seed of the choice.
        stream: Number of the random stream, so that different uses of one seed are independent.

    Returns:
        (remaining indices, chosen indices): sorted int64 tensors that partition `range(N)`.

    Example:
        >>> rest, chosen = hs.data.balanced(torch.tensor([0, 0, 0, 1, 1, -1]), per_class=1)
        >>> len(rest), len(chosen)
        (4, 2)
    """
    return of_each_class(labels, torch.full_like(_counts(labels), per_class), seed, stream)


def of_each_class(labels: Tensor, shares: Tensor, seed: int = 0, stream: int = SPLIT) -> tuple[Tensor, Tensor]:
    """As `balanced`, but choose `shares[c]` samples of class c."""
    order = permutation(len(labels), seed=seed, stream=stream)
    order = order[labels[order] >= 0]
    by_class = order[labels[order].argsort(stable=True)]
    classes, counts = labels[by_class], _counts(labels)
    rank = torch.arange(len(by_class)) - (counts.cumsum(0) - counts)[classes]
    return _without(by_class[rank < shares[classes]], len(labels))


def _counts(labels: Tensor) -> Tensor:
    return labels[labels >= 0].bincount()


def drawn(n: int, count: int) -> tuple[Tensor, Tensor]:
    """(remaining indices, `count` random indices) of `range(n)`, both sorted."""
    return _without(permutation(n, seed=0, stream=SPLIT)[:count], n)


def evenly(n: int, count: int) -> Tensor:
    """`count` evenly spaced indices of `range(n)`, including the first and the last; all if `count` ≥ n."""
    count = min(n, count)
    return torch.arange(count) * (n - 1) // max(1, count - 1)


ENOUGH_HELD_OUT = 500  # held-out labelled images that suffice; a tenth of it suffices for each class
MOST_WATCHED = 5_000  # at most so many training images are watched if nothing is held out


def test_of(parts: Mapping[str, Part], data: str, wanted: str) -> Part:
    """The test set, or the validation set if there is no test set; `wanted` tells the user what to add."""
    if "test" in parts:
        return parts["test"]
    if "val" not in parts:
        raise UserError(f"{data} has no test set: add {wanted}")
    notify_once(f"{data} has no test set: using its val set instead")
    return parts["val"]


def held_out_of(labels: Tensor | None, n: int, groups: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(training indices, held-out indices) of a dataset that has no split of its own.

    Holds out a share of each class with at least two images, or whole groups if `groups` is given. Without labels
    nothing is held out: the second list is then a random sample of the training images.
    """
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
            notify_once("no class has more than one image: accuracy cannot be measured with these labels")
        _, places = drawn(len(known), max(2, share_held_out(len(known), ENOUGH_HELD_OUT)))
        rest, held_out = _without(known[places], n)
    else:
        if alone := int((counts == 1).sum()):
            classes = int((counts > 0).sum())
            notify_once(f"{alone:,} of {classes:,} classes have only one image, which is used for training")
        rest, held_out = of_each_class(labels, shares)
    if len(known) - len(held_out) < 2:
        raise UserError(
            f"too few labelled images ({len(known)}): label four or more, so that two can be held out, or none"
        )
    return rest, held_out


def _whole_groups(labels: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Hold out whole groups, such that every class keeps at least one training group.

    First, in random order, small groups: those that do not exceed the wanted number of any class, while one of their
    classes still needs images. Then larger groups, smallest first, for classes with no held-out image.
    """
    counts = torch.zeros(int(groups.max()) + 1, int(labels.max()) + 1, dtype=torch.int64)
    known = labels >= 0
    counts.index_put_((groups[known], labels[known]), torch.tensor(1), accumulate=True)
    wanted = torch.tensor([share_held_out(n, ENOUGH_HELD_OUT // 10) if n else 0 for n in counts.sum(0).tolist()])
    held_out, chosen = torch.zeros_like(wanted), []
    others = (counts > 0).sum(0) - 1  # of each class: how many groups besides one have it
    order = permutation(len(counts), seed=0, stream=SPLIT).tolist()
    small = [(group, wanted) for group in order if (counts[group] <= wanted).all()]
    large = [(group, wanted.clamp(max=1)) for group in order if (counts[group] > wanted).any()]
    large.sort(key=lambda pair: (int(counts[pair[0]].sum()), pair[0]))
    for group, enough in (*small, *large):
        has = counts[group] > 0
        if (held_out < enough)[has].any() and (others > 0)[has].all():
            chosen.append(group)
            held_out += counts[group]
            others -= has.long()
    if not chosen:
        raise UserError(
            "cannot hold out any group: each one is the only group with images of some class; use more groups"
        )
    return _without(torch.isin(groups, torch.tensor(chosen)).nonzero().squeeze(1), len(labels))


def share_held_out(images: int, enough: int) -> int:
    """How many of `images` to hold out: 5 %, but up to 20 % of a small set, until there are `enough`."""
    return max(1, images // 20, min(images // 5, enough))


def _without(held_out: Tensor, n: int) -> tuple[Tensor, Tensor]:
    rest = torch.ones(n, dtype=torch.bool)
    rest[held_out] = False
    return rest.nonzero().squeeze(1), held_out.sort().values
