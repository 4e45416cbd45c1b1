"""Minimum hyperspherical energy of the weights (eq:mhe_reg), in the whole space or in random subspaces."""

from collections.abc import Sequence

from torch import Tensor, nn

from hypersphere.regularize.layers import KeptNormals, WeightRegularizer, check_count, means
from hypersphere.regularize.where import Where
from hypersphere.sphere.measures import Metric, check_energy, check_number, mean_energies
from hypersphere.sphere.unit import unit, without_autocast
from hypersphere.util.draws import PROJECTIONS


class EnergyRegularizer(WeightRegularizer):
    """weight · Σ over layers of the mean pair energy of the layer's neurons, as a differentiable scalar.

        regularizer = hs.EnergyRegularizer(model, s=2, metric="geodesic", weight=10.0)
        loss = criterion(model(x), y) + regularizer()

    `where` chooses layers: names of sub-networks ("projector"), patterns ("encoder.layer4.*"), modules, classes of
    them, several of these, or a function of the name and the module; by default all layers with neurons that are
    trainable now (`WeightRegularizer`). Nothing is registered: the state_dict is empty.

    `dimensions` k makes it compressive (CoMHE by random projections, Lin et al. 2020): the energy of the N neurons Pŵ,
    averaged over `projections` matrices P of k × D independent normal numbers. They are drawn once, by the `seed`, and
    kept for good; neurons of one size share them. Neurons of k weights or fewer are not projected.
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
        self._normals = KeptNormals(projections * (dimensions or 0), seed, PROJECTIONS)

    def measure(self, matrices: Sequence[Tensor]) -> Tensor:
        if self.dimensions is None:
            return mean_energies(matrices, self.s, self.metric, self.half_space)
        shadows = [self._project(w, self.dimensions) for w in matrices]
        energies = mean_energies([w for of_one in shadows for w in of_one], self.s, self.metric, self.half_space)
        return means(energies, [len(of_one) for of_one in shadows])

    def _project(self, w: Tensor, k: int) -> tuple[Tensor, ...]:
        """The unit rows of w in each of the random subspaces, N × k."""
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
