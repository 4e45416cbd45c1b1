"""Few-shot classification: the nearest mean of k labelled examples of each class."""

from statistics import fmean

import torch
from torch import Tensor

from hypersphere.evaluate.features import accuracy
from hypersphere.evaluate.stored_features import on_stored_features
from hypersphere.sphere import unit
from hypersphere.util.random_numbers import FEW_SHOT, permutation
from hypersphere.util.statistics import half_width


@on_stored_features
def few_shot(
    features: Tensor, labels: Tensor, queries: Tensor, truth: Tensor, shots: int = 1, draws: int = 50
) -> tuple[float, float]:
    """Accuracy of the nearest class mean, by cosine, of a few labelled examples of each class.

    Args:
        features: Features of shape (N, D), a tensor or an array; examples are drawn from them.
        labels: Classes of shape (N,), integers; features with a label below 0 are ignored.
        queries: Features of shape (M, D) to classify.
        truth: Classes of the queries, of shape (M,). Classes that `labels` does not have are always wrong.
        shots: Examples of each class.
        draws: Number of draws of the examples, with seeds 0, 1, ….

    Returns:
        Mean top-1 accuracy over the draws in per cent, and the half-width of its 95 % t-interval (NaN for one draw).

    Raises:
        ValueError: If shapes do not match, or `shots` or `draws` are below 1.

    Example:
        >>> import hypersphere as hs
        >>> hs.evaluate.few_shot(torch.eye(4), torch.arange(4), torch.eye(4), torch.arange(4), shots=1, draws=2)
        (100.0, 0.0)
    """
    if shots < 1 or draws < 1:
        raise ValueError(f"shots and draws must be at least 1, got {shots} and {draws}")
    features, queries = unit(features), unit(queries)
    results = []
    for seed in range(draws):
        order = permutation(len(labels), seed=seed, stream=FEW_SHOT, device=labels.device)
        means = [features[order[labels[order] == c][:shots]].mean(dim=0) for c in range(int(labels.max()) + 1)]
        results.append(accuracy(queries @ unit(torch.stack(means)).T, truth).top1)
    return fmean(results), half_width(results)
