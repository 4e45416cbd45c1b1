"""A linear classifier on frozen features, with its regularization chosen on some of the training images."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hypersphere.data.splits import of_each_class
from hypersphere.evaluate.linear import mean_and_scale, softmax_regression

DECAYS = tuple(10.0**power for power in range(4, -3, -1))  # strongest first
USUAL_DECAY = 1.0  # if no class has a second image to choose on
PATIENCE = 2  # weaker decays in a row that are worse before the search stops
ENOUGH = 20_000  # training images to choose on


@dataclass(frozen=True)
class LinearHead:
    """Scores of classes: W x + b of features x, which may be normalized first.

    Attributes:
        weight: W, of shape (C, D).
        bias: b, of shape (C,).
        normalized: Whether features are divided by their norm first.
        decay: Weight of the L2 penalty that was chosen; None if there is none.
    """

    weight: Tensor
    bias: Tensor
    normalized: bool = False
    decay: float | None = None

    def scores(self, features: Tensor) -> Tensor:
        """Scores of shape (N, C) of features of shape (N, D)."""
        x = F.normalize(features, dim=1) if self.normalized else features
        return F.linear(x, self.weight, self.bias)


def fit_head(features: Tensor, labels: Tensor, classes: int) -> LinearHead:
    """Logistic regression on features, which chooses its decay and whether to normalize features.

    A fifth of the images of each class is held out to choose by the cross-entropy; then all images are fitted. Features
    are standardized for the fit, and the head contains that.

    Args:
        features: Features of shape (N, D).
        labels: Classes of shape (N,), from 0 to `classes` − 1.
        classes: Number of classes.

    Returns:
        The head for all classes; one without images is never predicted.
    """
    counts = labels.cpu().bincount(minlength=classes)
    shares = torch.where(counts > 1, (counts / 5).ceil().long(), 0)
    rest, chosen = of_each_class(labels.cpu(), shares[: int(labels.max()) + 1])
    if len(rest) > ENOUGH:
        rest = rest[torch.linspace(0, len(rest) - 1, ENOUGH).long()]
    best = (math.inf, False, USUAL_DECAY)
    rest, chosen = rest.to(labels.device), chosen.to(labels.device)
    for normalized in (False, True):
        worse, before, start = 0, math.inf, None
        for decay in DECAYS if len(chosen) else ():
            start, head = _fit(features[rest], labels[rest], classes, decay, normalized, start)
            loss = float(F.cross_entropy(head.scores(features[chosen]), labels[chosen]))
            best = min(best, (loss, normalized, decay))
            worse, before = (worse + 1 if loss > before else 0), loss
            if worse == PATIENCE:
                break
    _, normalized, decay = best
    return _fit(features, labels, classes, decay, normalized)[1]


def _fit(
    features: Tensor,
    labels: Tensor,
    classes: int,
    decay: float,
    normalized: bool,
    start: tuple[Tensor, Tensor] | None = None,
) -> tuple[tuple[Tensor, Tensor], LinearHead]:
    """(weights and biases for standardized features, the head for features as they are)."""
    x = F.normalize(features, dim=1) if normalized else features
    mean, scale = mean_and_scale(x)
    weight, bias = softmax_regression((x - mean) / scale, labels, classes, decay, start)
    return (weight, bias), LinearHead(weight / scale, bias - weight @ (mean / scale), normalized, decay)
