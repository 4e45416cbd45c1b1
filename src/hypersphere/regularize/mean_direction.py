"""Mean direction of the neurons: the part of hyperspherical energy that is linear in the cosines."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hypersphere.regularize.layers import WeightRegularizer
from hypersphere.sphere.unit import unit


class MeanDirectionRegularizer(WeightRegularizer):
    """weight · Σ over layers of ‖mean ŵ‖², the squared length of the mean of the layer's unit neurons.

        regularizer = hs.regularize.MeanDirectionRegularizer(model, weight=5.0)
        loss = criterion(model(x), y) + regularizer()

    It is 0 if the neurons balance each other and 1 if they all coincide. It pushes all neurons away from their common
    direction and, unlike an energy, does not separate neighbours. ‖mean ŵ‖² is 1/N plus (N − 1)/N times the mean cosine
    of the pairs, so it is the first-order term of any energy around right angles: for the angular energy with s = 2,
    θ⁻² = (2/π)² + (16/π³) cos θ + …

    `where` chooses layers as for `EnergyRegularizer` (`WeightRegularizer`). A zero neuron counts as a zero vector and
    has gradient 0. Half precision is computed and returned in float32.
    """

    def measure(self, matrices: Sequence[Tensor]) -> Tensor:
        return torch.stack([unit(w.flatten(1)).mean(dim=0).square().sum() for w in matrices])
