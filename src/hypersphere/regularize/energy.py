"""Minimum hyperspherical energy of the weights (eq:mhe_reg), in the full space or in random subspaces."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from hypersphere.regularize.layers import Also, FixedNormals, Weight, WeightRegularizer, check_count, means
from hypersphere.regularize.selection import Where
from hypersphere.sphere.evenness import even_energy
from hypersphere.sphere.measures import Metric, check_energy, check_number, mean_energies
from hypersphere.sphere.unit import unit, without_autocast
from hypersphere.util.random_numbers import PROJECTIONS

Target = Literal["initial", "even"] | float | Mapping[str, float] | None


class EnergyRegularizer(WeightRegularizer):
    """Hyperspherical energy of the neurons, summed over layers (MHE, Liu et al., 2018; eq:mhe_reg).

    Calling it returns weight · Σ over layers of `hs.hyperspherical_energy` of the layer's neurons. Add that to the
    loss. `per_layer()` returns the energies by layer. See `hs.regularize.WeightRegularizer` for which layers count; the
    state_dict is empty.

    With `dimensions` it is compressive (CoMHE by random projections, Lin et al., 2020): the energy of the projected
    neurons, averaged over random subspaces. The projections are drawn once and kept.

    Args:
        model: The model to regularize.
        s: Power of the inverse distance, at least 0; −log at 0.
        metric: "euclidean" for the distance of neurons, or "geodesic" for their angle.
        weight: Factor of the sum, at least 0, or a function of `progress`.
        half_space: Whether to include the negatives of the neurons.
        where: Layers to regularize: names of sub-networks ("projector"), patterns ("encoder.layer4.*"), modules,
            classes of modules, several of these, or a function of (name, module). Default: all trainable layers with
            neurons.
        dimensions: Dimensions of the random subspaces. Default: no projection. Neurons with at most this many weights
            are not projected.
        projections: Number of random subspaces.
        seed: Seed of the projections.
        exclude: Layers to leave out, in the same ways as `where`.
        also: Other parameters by name, such as {"embed.weight": "rows"}; see `hs.regularize.WeightRegularizer`.
        every: Compute it only in every n-th call, n times as strong.
        target: Energy to keep to, instead of the least: the sum is over (energy − target)². "initial": the energy of
            each layer now, to preserve it in fine-tuning; "even": that of neurons spread evenly over the sphere; a
            number; or a number for each layer by name. `targets` has the numbers.

    Returns:
        A scalar tensor, differentiable with respect to the weights, on the device of the first layer.

    Raises:
        TypeError: If `model` is not a module, or an option has the wrong type.
        ValueError: If no trainable layer matches `where`, or an option is out of range.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        >>> regularizer = hs.EnergyRegularizer(model, metric="geodesic", weight=0.1)
        >>> loss = model(torch.randn(16, 8)).square().mean() + regularizer()
        >>> list(regularizer.per_layer())
        ['0', '2']
    """

    def __init__(
        self,
        model: nn.Module,
        s: float = 2.0,
        metric: Metric = "euclidean",
        weight: Weight = 1.0,
        half_space: bool = False,
        where: Where = None,
        dimensions: int | None = None,
        projections: int = 20,
        seed: int = 0,
        *,
        exclude: Where = None,
        also: Also | None = None,
        every: int = 1,
        target: Target = None,
    ) -> None:
        super().__init__(model, weight, where, exclude, also, every)
        check_number("s", s)
        check_energy(s, metric)
        check_count("projections", projections)
        if dimensions is not None:
            check_count("dimensions", dimensions)
        self.s, self.metric, self.half_space = s, metric, half_space
        self.dimensions, self.projections = dimensions, projections
        self._normals = FixedNormals(projections * (dimensions or 0), seed, PROJECTIONS)
        self.targets = None if target is None else self._targets(target)

    def _targets(self, target: str | float | Mapping[str, float]) -> dict[str, float]:
        names = [layer.name for layer in self._layers]
        if isinstance(target, str) and target == "initial":
            with torch.no_grad():
                return {name: energy.item() for name, energy in self.per_layer().items()}
        if isinstance(target, str) and target == "even":
            if self.half_space or self.dimensions is not None:
                raise ValueError('target "even" is for energies without `half_space` and `dimensions`: pass numbers')
            widths = {layer.name: layer.matrices()[0][0].numel() for layer in self._layers}
            found = {name: even_energy(width, float(self.s), self.metric) for name, width in widths.items()}
        elif isinstance(target, Mapping):
            found = {name: float(target[name]) for name in names if name in target}
            if missing := [name for name in names if name not in target]:
                raise ValueError(f"target has no number for layer {missing[0]!r}")
        elif isinstance(target, str):
            raise ValueError(f'target must be "initial", "even", a number, or numbers by layer, got {target!r}')
        else:
            check_number("target", target)
            found = dict.fromkeys(names, float(target))
        if wrong := [name for name, value in found.items() if not math.isfinite(value)]:
            raise ValueError(f"the target of layer {wrong[0]!r} is not finite: exclude it, or pass numbers")
        return found

    def _terms(self) -> Tensor:
        energies = self._of_layers()
        if self.targets is None:
            return energies
        return (energies - energies.new_tensor(list(self.targets.values()))).square()

    def measure(self, matrices: Sequence[Tensor]) -> Tensor:
        if self.dimensions is None:
            return mean_energies(matrices, self.s, self.metric, self.half_space)
        shadows = [self._project(w, self.dimensions) for w in matrices]
        energies = mean_energies([w for of_one in shadows for w in of_one], self.s, self.metric, self.half_space)
        return means(energies, [len(of_one) for of_one in shadows])

    def _project(self, w: Tensor, k: int) -> tuple[Tensor, ...]:
        """The unit rows of w, projected to each of the random subspaces: N × k."""
        w = unit(w.flatten(1))
        d = w.shape[1]
        if d <= k:
            return (w,)
        with without_autocast(w):
            projected = w @ self._normals(d, w)
        return projected.unflatten(1, (self.projections, k)).transpose(0, 1).contiguous().unbind()

    def extra_repr(self) -> str:
        whole = f"{self._chosen_in_words()}, s={self.s}, metric={self.metric}, weight={self.weight}"
        if self.dimensions is None:
            return whole
        return f"{whole}, dimensions={self.dimensions}, projections={self.projections}"
