"""Regularizers of the weights of any model."""

from hypersphere.regularize.energy import EnergyRegularizer
from hypersphere.regularize.layers import WeightRegularizer, groups_of, has_neurons, layers_of
from hypersphere.regularize.mean_direction import MeanDirectionRegularizer
from hypersphere.regularize.orthogonality import OrthogonalityRegularizer

__all__ = [
    "EnergyRegularizer",
    "MeanDirectionRegularizer",
    "OrthogonalityRegularizer",
    "WeightRegularizer",
    "groups_of",
    "has_neurons",
    "layers_of",
]
