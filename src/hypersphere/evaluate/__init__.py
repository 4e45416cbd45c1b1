"""Probes: how good the features of an encoder are, measured with labels, and how they spread over the sphere.

Probes know encoders and data, but not how the encoders were trained.

May import: data, errors, optim, probes, sphere, util, views.
"""

import warnings
from typing import TYPE_CHECKING, Any

from hypersphere.data import Images
from hypersphere.evaluate.features import Accuracy, accuracy, chance_of, extract, features_of
from hypersphere.evaluate.fewshot import few_shot
from hypersphere.evaluate.finetune import few_labels, fine_tune
from hypersphere.evaluate.knn import knn
from hypersphere.evaluate.linear import linear, linear_cached
from hypersphere.evaluate.suite import Evaluation, KnnMonitor, evaluate_encoder
from hypersphere.evaluate.transfer import transfer_views
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
    "knn",
    "linear",
    "linear_cached",
    "transfer_views",
]


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name == "in_channels":
            warnings.warn("hs.evaluate.in_channels is now Images.in_channels", DeprecationWarning, stacklevel=2)
            return Images.in_channels
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
