"""Calibration: whether the probabilities of a classifier are as often right as they say."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BINS = 15  # of equal width, as in Guo et al. (2017)
FEWEST = 50  # images to fit a temperature on
LOG_TEMPERATURES = (-3.0, 3.0)  # from 0.05 to 20


def fit_temperature(scores: Tensor, labels: Tensor) -> float:
    """The temperature T that makes softmax(scores / T) most likely (Guo et al., 2017).

    The targets are (N + 1) / (N + 2) for the true class, as Platt's are: else T would vanish if all are correct.

    Args:
        scores: Scores of shape (N, C), of images that the classifier was not trained on.
        labels: True classes of shape (N,).
    """
    from scipy.optimize import minimize_scalar

    scores, labels = scores.double().cpu(), labels.cpu()
    n, classes = scores.shape
    targets = torch.full_like(scores, 1 / (n + 2) / max(1, classes - 1))
    targets[range(n), labels] = (n + 1) / (n + 2)

    def loss(log_temperature: float) -> float:
        return float(F.cross_entropy(scores / torch.tensor(log_temperature).exp(), targets))

    return float(torch.tensor(minimize_scalar(loss, bounds=LOG_TEMPERATURES, method="bounded").x).exp())


def calibrated_apart(scores: Tensor, labels: Tensor) -> Tensor:
    """Probabilities of shape (N, C): each half of the rows with the temperature of the other half."""
    found = torch.empty_like(scores)
    for half in (0, 1):
        other = 1 - half
        if len(scores[other::2]):
            found[half::2] = (scores[half::2] / fit_temperature(scores[other::2], labels[other::2])).softmax(dim=1)
    return found


def log_loss(probabilities: Tensor, labels: Tensor) -> float:
    """Mean negative logarithm of the probability of the true class."""
    p = probabilities.double().cpu()
    return float(F.nll_loss(p.clamp(min=torch.finfo(torch.float32).tiny).log(), labels.cpu()))


class Reliability(NamedTuple):
    """How often predictions are correct, by their confidence.

    Attributes:
        confidence: Mean probability of the predicted class in each bin that has predictions, shape (B,).
        accuracy: Share of correct predictions in each of these bins, shape (B,).
        images: Predictions in each of these bins, shape (B,).
    """

    confidence: Tensor
    accuracy: Tensor
    images: Tensor

    @property
    def error(self) -> float:
        """Expected calibration error: the mean gap between confidence and accuracy, from 0 to 1."""
        gaps = (self.confidence - self.accuracy).abs()
        return float((gaps * self.images).sum() / self.images.sum())


def reliability(probabilities: Tensor, labels: Tensor, bins: int = BINS) -> Reliability:
    """Confidence and accuracy of the most probable class, in bins of equal width.

    Args:
        probabilities: Probabilities of shape (N, C).
        labels: True classes of shape (N,).
        bins: Number of bins.

    Example:
        >>> found = reliability(torch.tensor([[0.9, 0.1], [0.8, 0.2]]), torch.tensor([0, 1]), bins=1)
        >>> round(found.error, 4)
        0.35
    """
    confidence, predicted = probabilities.double().cpu().max(dim=1)
    correct = (predicted == labels.cpu()).double()
    place = (confidence * bins).ceil().long().clamp(1, bins) - 1
    count = place.bincount(minlength=bins)
    sums = [torch.zeros(bins, dtype=torch.float64).index_add_(0, place, values) for values in (confidence, correct)]
    filled = count > 0
    return Reliability(sums[0][filled] / count[filled], sums[1][filled] / count[filled], count[filled])
