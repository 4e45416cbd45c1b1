"""Weighted k-nearest-neighbour classification by cosine similarity (Wu et al. 2018)."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from hypersphere.evaluate.features import Accuracy, accuracy
from hypersphere.evaluate.stored_features import on_stored_features
from hypersphere.sphere import unit

AT_ONCE = 2**28  # cosines: 1 GiB
SETTINGS = tuple(itertools.product((10, 20, 50, 100, 200), (0.05, 0.07, 0.1, 0.2)))  # k and T of `knn_by_setting`
USUAL = (200, 0.1)  # of many published benchmarks


@on_stored_features
def knn(
    features: Tensor, labels: Tensor, queries: Tensor, truth: Tensor, k: int = 200, temperature: float = 0.1
) -> Accuracy:
    """Accuracy of k-nearest-neighbour classification: each neighbour votes for its class with weight exp(cos / T).

    Args:
        features: Features of shape (N, D), a tensor or an array, that vote.
        labels: Classes of shape (N,), integers; features with a label below 0 are ignored.
        queries: Features of shape (M, D) to classify.
        truth: Classes of the queries, of shape (M,). Classes that `labels` does not have are always wrong.
        k: Number of neighbours; N if that is smaller.
        temperature: T of the weights.

    Returns:
        Top-1 and top-5 accuracy in per cent.

    Raises:
        ValueError: If shapes do not match, `k` is below 1, or `temperature` is not positive.

    Example:
        >>> import hypersphere as hs
        >>> features, labels = torch.eye(4), torch.arange(4)
        >>> hs.evaluate.knn(features, labels, features + 0.1, labels, k=1)
        Accuracy(top1=100.0, top5=100.0)
    """
    return _accuracies(features, labels, queries, truth, [(k, temperature)])[0]


@on_stored_features
def knn_by_setting(features: Tensor, labels: Tensor, queries: Tensor, truth: Tensor) -> dict[tuple[int, float], float]:
    """Top-1 accuracy of `knn` for each k and T of `SETTINGS`."""
    found = _accuracies(features, labels, queries, truth, SETTINGS)
    return {setting: accuracy.top1 for setting, accuracy in zip(SETTINGS, found, strict=True)}


def _accuracies(
    features: Tensor, labels: Tensor, queries: Tensor, truth: Tensor, settings: Sequence[tuple[int, float]]
) -> list[Accuracy]:
    """Accuracies for several k and T by one search for the neighbours of the largest k."""
    for k, temperature in settings:
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
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
