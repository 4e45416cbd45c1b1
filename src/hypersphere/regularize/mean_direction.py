"""Mean direction of the neurons: the part of hyperspherical energy that is linear in the cosines."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hypersphere.regularize.layers import WeightRegularizer
from hypersphere.sphere.unit import unit


class MeanDirectionRegularizer(WeightRegularizer):
    """Squared length of the mean unit neuron, ‖mean ŵ‖², summed over layers.

    It is 0 if the neurons of a layer balance each other and 1 if they all coincide. It pushes all neurons away from
    their common direction and, unlike an energy, does not separate neighbours. ‖mean ŵ‖² is 1/N plus (N − 1)/N times
    the mean cosine of the pairs, so it is the first-order term of any energy around right angles: for the angular
    energy with s = 2, θ⁻² = (2/π)² + (16/π³) cos θ + …

    A zero neuron counts as a zero vector and has gradient 0. Half precision is computed and returned in float32.

    Args:
        model: The model to regularize.
        weight: Factor of the sum, at least 0.
        where: Layers to regularize: names of sub-networks ("projector"), patterns ("encoder.layer4.*"), modules,
            classes of modules, several of these, or a function of (name, module). Default: all trainable layers with
            neurons.
        exclude: Layers to leave out, in the same ways as `where`.
        also: Other parameters by name, such as {"embed.weight": "rows"}; see `hs.regularize.WeightRegularizer`.
        every: Compute it only in every n-th call, n times as strong.

    Returns:
        Calling it returns a scalar tensor, differentiable with respect to the weights.

    Raises:
        TypeError: If `model` is not a module, or an option has the wrong type.
        ValueError: If no trainable layer matches `where`, or `weight` is negative.

    Example:
        >>> layer = torch.nn.Linear(4, 3)
        >>> _ = torch.nn.init.ones_(layer.weight)
        >>> round(hs.regularize.MeanDirectionRegularizer(layer, weight=5.0)().item(), 3)
        5.0
    """

    def measure(self, matrices: Sequence[Tensor]) -> Tensor:
        return torch.stack([unit(w.flatten(1)).mean(dim=0).square().sum() for w in matrices])
