"""Probes: how good the features of an encoder are, measured with labels, and how they spread over the sphere.

Probes know encoders and data, but not how the encoders were trained. May import `data`, `optim`, `sphere`, `train`,
`views` and everything below them.
"""

from hypersphere.evaluate.features import Accuracy, accuracy, chance_of, extract, features_of
from hypersphere.evaluate.fewshot import few_shot
from hypersphere.evaluate.finetune import few_labels, fine_tune
from hypersphere.evaluate.knn import knn
from hypersphere.evaluate.linear import linear, linear_cached
from hypersphere.evaluate.suite import Evaluation, KnnMonitor, evaluate_encoder
from hypersphere.evaluate.transfer import in_channels, transfer_views
from hypersphere.probes import PROBES

__all__ = [
    "PROBES",
    "Accuracy",
    "Evaluation",
    "KnnMonitor",
    "accuracy",
    "chance_of",
    "evaluate_encoder",
    "extract",
    "features_of",
    "few_labels",
    "few_shot",
    "fine_tune",
    "in_channels",
    "knn",
    "linear",
    "linear_cached",
    "transfer_views",
]
