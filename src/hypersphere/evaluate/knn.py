"""Weighted k-nearest-neighbour classification by cosine similarity (Wu et al. 2018)."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from hypersphere.evaluate.features import Accuracy, accuracy
from hypersphere.evaluate.stored import of_stored
from hypersphere.sphere import unit

AT_ONCE = 2**28  # cosines: 1 GiB


SETTINGS = tuple(itertools.product((10, 20, 50, 100, 200), (0.05, 0.07, 0.1, 0.2)))  # k and T, to see how they matter


@of_stored
def knn(
    features: Tensor, labels: Tensor, queries: Tensor, truth: Tensor, k: int = 200, temperature: float = 0.1
) -> Accuracy:
    """Each of the k nearest features votes for its label with weight exp(cos / T)."""
    return _accuracies(features, labels, queries, truth, [(k, temperature)])[0]


@of_stored
def knn_range(features: Tensor, labels: Tensor, queries: Tensor, truth: Tensor) -> float:
    """How much k-NN accuracy depends on its settings: per cent between the best and the worst of `SETTINGS`.

    Args:
        features: Of shape (N, D); they vote. A k above N counts as N.
        labels: Of shape (N,), from 0.
        queries: Of shape (M, D).
        truth: Labels of the queries, of shape (M,).
    """
    top = [found.top1 for found in _accuracies(features, labels, queries, truth, SETTINGS)]
    return max(top) - min(top)


def _accuracies(
    features: Tensor, labels: Tensor, queries: Tensor, truth: Tensor, settings: Sequence[tuple[int, float]]
) -> list[Accuracy]:
    """By one search for the neighbours of the largest k."""
    for k, temperature in settings:
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, not {temperature}")
    bank, queries = unit(features), unit(queries)
    most, classes = min(max(k for k, _ in settings), len(bank)), int(labels.max()) + 1
    scores: list[list[Tensor]] = [[] for _ in settings]
    for part in queries.split(max(1, min(1000, AT_ONCE // len(bank)))):
        nearest = (part @ bank.T).topk(most, dim=1)
        voters, behind = labels[nearest.indices], nearest.values - nearest.values[:, :1]
        for (k, temperature), of_setting in zip(settings, scores, strict=True):
            votes = torch.zeros(len(part), classes, device=part.device)
            votes.scatter_add_(1, voters[:, :k], (behind[:, :k] / temperature).exp())
            of_setting.append(votes.masked_fill_(votes == 0, -math.inf))  # a class without a vote is no answer
    return [accuracy(torch.cat(of_setting), truth) for of_setting in scores]
