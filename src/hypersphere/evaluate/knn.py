"""Weighted k-nearest-neighbour classification by cosine similarity (Wu et al. 2018)."""

import math

import torch
from torch import Tensor

from hypersphere.evaluate.features import Accuracy, accuracy
from hypersphere.evaluate.stored import of_stored
from hypersphere.sphere import unit

AT_ONCE = 2**28  # cosines: 1 GiB


@of_stored
def knn(
    features: Tensor, labels: Tensor, queries: Tensor, truth: Tensor, k: int = 200, temperature: float = 0.1
) -> Accuracy:
    """Each of the k nearest features votes for its label with weight exp(cos / T)."""
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, not {temperature}")
    bank, queries = unit(features), unit(queries)
    k, classes = min(k, len(bank)), int(labels.max()) + 1
    scores = []
    for part in queries.split(max(1, min(1000, AT_ONCE // len(bank)))):
        nearest = (part @ bank.T).topk(k, dim=1)
        votes = torch.zeros(len(part), classes, device=part.device)
        votes.scatter_add_(1, labels[nearest.indices], ((nearest.values - nearest.values[:, :1]) / temperature).exp())
        scores.append(votes.masked_fill_(votes == 0, -math.inf))  # a class without a vote is no answer
    return accuracy(torch.cat(scores), truth)
