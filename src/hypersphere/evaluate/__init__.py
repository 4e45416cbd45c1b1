"""How good is an encoder? Probes that know encoders and data, nothing of how they were trained."""

from hypersphere.evaluate.features import Accuracy, accuracy, extract, features_of
from hypersphere.evaluate.fewshot import few_shot
from hypersphere.evaluate.finetune import few_labels, fine_tune
from hypersphere.evaluate.knn import knn
from hypersphere.evaluate.linear import linear, linear_cached
from hypersphere.evaluate.suite import Evaluation, KnnMonitor, evaluate_encoder
from hypersphere.evaluate.transfer import in_channels, transferred
from hypersphere.probes import PROBES

__all__ = [
    "PROBES",
    "Accuracy",
    "Evaluation",
    "KnnMonitor",
    "accuracy",
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
    "transferred",
]
