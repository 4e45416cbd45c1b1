"""Regularizers of the weights of any model: hyperspherical energy, orthogonality, mean direction.

`WeightRegularizer` chooses the layers, reads their neurons and adds up a measure of each layer; the others define that
measure. A regularizer of your own is a subclass, too.

May import: errors, sphere, util.
"""

from hypersphere.regularize.energy import EnergyRegularizer
from hypersphere.regularize.layers import WeightRegularizer, has_neurons, layers_of
from hypersphere.regularize.mean_direction import MeanDirectionRegularizer
from hypersphere.regularize.neurons import groups_of
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
