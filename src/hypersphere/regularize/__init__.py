"""Regularizers of the weights of any model."""

from hypersphere.regularize.energy import EnergyRegularizer
from hypersphere.regularize.layers import WeightRegularizer, has_neurons, neurons, weights_per_neuron
from hypersphere.regularize.orthogonality import OrthogonalityRegularizer

__all__ = [
    "EnergyRegularizer",
    "OrthogonalityRegularizer",
    "WeightRegularizer",
    "has_neurons",
    "neurons",
    "weights_per_neuron",
]
