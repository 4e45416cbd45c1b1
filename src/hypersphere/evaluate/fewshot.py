"""Few-shot classification: the nearest mean of k labelled examples a class."""

from statistics import fmean

import torch
from torch import Tensor

from hypersphere.evaluate.features import accuracy
from hypersphere.evaluate.stored import of_stored
from hypersphere.sphere import unit
from hypersphere.util.draws import FEW_SHOT, permutation
from hypersphere.util.intervals import half_width


@of_stored
def few_shot(
    features: Tensor, labels: Tensor, queries: Tensor, truth: Tensor, shots: int = 1, draws: int = 50
) -> tuple[float, float]:
    """Mean top-1 accuracy over seeded draws of the labelled examples, and the half-width of its 95 % t-interval (NaN of
    one draw).

    The classes are those that have an example: what is of another is never found.
    """
    if shots < 1 or draws < 1:
        raise ValueError(f"shots and draws must be at least 1, not {shots} and {draws}")
    features, queries = unit(features), unit(queries)
    results = []
    for seed in range(draws):
        order = permutation(len(labels), seed=seed, stream=FEW_SHOT, device=labels.device)
        means = [features[order[labels[order] == c][:shots]].mean(dim=0) for c in range(int(labels.max()) + 1)]
        results.append(accuracy(queries @ unit(torch.stack(means)).T, truth).top1)
    return fmean(results), half_width(results)
