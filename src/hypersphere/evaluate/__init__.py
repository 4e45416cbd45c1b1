"""How good is an encoder? Probes that know encoders and data, nothing of how they were trained."""

from hypersphere.evaluate.features import Accuracy, accuracy, extract
from hypersphere.evaluate.fewshot import few_shot
from hypersphere.evaluate.knn import knn
from hypersphere.evaluate.linear import linear, linear_cached
from hypersphere.evaluate.suite import PROBES, Evaluation, KnnMonitor, Probe, centre, evaluate_encoder

__all__ = [
    "PROBES",
    "Accuracy",
    "Evaluation",
    "KnnMonitor",
    "Probe",
    "accuracy",
    "centre",
    "evaluate_encoder",
    "extract",
    "few_shot",
    "knn",
    "linear",
    "linear_cached",
]
