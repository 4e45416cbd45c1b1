"""Minimum hyperspherical energy of the weights (eq:mhe_reg), in the full space or in random subspaces."""

from collections.abc import Sequence

from torch import Tensor, nn

from hypersphere.regularize.layers import FixedNormals, WeightRegularizer, check_count, means
from hypersphere.regularize.selection import Where
from hypersphere.sphere.measures import Metric, check_energy, check_number, mean_energies
from hypersphere.sphere.unit import unit, without_autocast
from hypersphere.util.random_numbers import PROJECTIONS


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
        weight: Factor of the sum, at least 0.
        half_space: Whether to include the negatives of the neurons.
        where: Layers to regularize: names of sub-networks ("projector"), patterns ("encoder.layer4.*"), modules,
            classes of modules, several of these, or a function of (name, module). Default: all trainable layers with
            neurons.
        dimensions: Dimensions of the random subspaces. Default: no projection. Neurons with at most this many weights
            are not projected.
        projections: Number of random subspaces.
        seed: Seed of the projections.

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
        weight: float = 1.0,
        half_space: bool = False,
        where: Where = None,
        dimensions: int | None = None,
        projections: int = 20,
        seed: int = 0,
    ) -> None:
        super().__init__(model, weight, where)
        check_number("s", s)
        check_energy(s, metric)
        check_count("projections", projections)
        if dimensions is not None:
            check_count("dimensions", dimensions)
        self.s, self.metric, self.half_space = s, metric, half_space
        self.dimensions, self.projections = dimensions, projections
        self._normals = FixedNormals(projections * (dimensions or 0), seed, PROJECTIONS)

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
        whole = f"{len(self._layers)} layers, s={self.s}, metric={self.metric}, weight={self.weight}"
        if self.dimensions is None:
            return whole
        return f"{whole}, dimensions={self.dimensions}, projections={self.projections}"
