"""Orthogonality of the weights (Bansal et al. 2018): neurons at right angles and of length one."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from hypersphere.regularize.layers import KeptNormals, WeightRegularizer, check_count
from hypersphere.regularize.where import Where
from hypersphere.sphere.unit import unit, widen, without_autocast
from hypersphere.util.draws import POWER

Kind = Literal["soft", "srip"]


class OrthogonalityRegularizer(WeightRegularizer):
    """weight · Σ over layers of how far the layer's neurons W (N × D) are from orthonormal, as a differentiable scalar.

        regularizer = hs.OrthogonalityRegularizer(model, kind="srip", weight=0.1)
        loss = criterion(model(x), y) + regularizer()

    "soft" is ‖WWᵀ − I‖²_F; "srip", the spectral restricted isometry property, is ‖WWᵀ − I‖₂, the largest |eigenvalue|.
    As published, W is not normalized, so lengths are drawn to 1. Where there are more neurons than weights, N > D, they
    cannot all be at right angles, and WᵀW − I is taken: of the columns, so that 0 can be reached. ‖·‖²_F then is less
    by the constant N − D, with the same gradient, and ‖·‖₂ leaves out the eigenvalue −1, which no training changes.

    SRIP takes `iterations` steps of the power method, each two products with W, from a normal vector that is drawn
    once, by the `seed`, and kept. Its value is ‖(WWᵀ − I)v‖ for the unit vector v found, at most the true one; its
    gradient takes v as fixed, which is exact where the method has converged, and nearly so after few steps.

    Half precision is computed and returned in float32. Orthonormal neurons have value and gradient 0, a zero neuron
    has gradient 0 (of SRIP: where it has converged). `where` chooses layers as for `EnergyRegularizer`
    (`WeightRegularizer`). Nothing is registered: the state_dict is empty.
    """

    def __init__(
        self,
        model: nn.Module,
        kind: Kind = "soft",
        weight: float = 1.0,
        where: Where = None,
        iterations: int = 10,
        seed: int = 0,
    ) -> None:
        super().__init__(model, weight, where)
        if kind not in get_args(Kind):
            raise ValueError(f"kind must be 'soft' or 'srip', not {kind!r}")
        check_count("iterations", iterations)
        self.kind, self.iterations = kind, iterations
        self._normals = KeptNormals(1, seed, POWER)

    def measure(self, matrices: Sequence[Tensor]) -> Tensor:
        return torch.stack([self._of_matrix(widen(w).flatten(1)) for w in matrices])

    def _of_matrix(self, w: Tensor) -> Tensor:
        w = w if len(w) <= w.shape[1] else w.T
        with without_autocast(w):
            if self.kind == "soft":
                return _soft(w)
            return _srip(w, self._normals(len(w), w).flatten(), self.iterations)

    def extra_repr(self) -> str:
        return f"{len(self._layers)} layers, kind={self.kind}, weight={self.weight}"


def _soft(w: Tensor) -> Tensor:
    identity = torch.eye(len(w), dtype=w.dtype, device=w.device)
    return (w @ w.T - identity).square().sum()


def _srip(w: Tensor, start: Tensor, iterations: int) -> Tensor:
    """‖Av‖ of A = WWᵀ − I rather than vᵀAv, which vanishes where v mixes the eigenvectors of λ and −λ."""
    fixed, v = w.detach(), unit(start)
    for _ in range(iterations):
        v = unit(_residual(fixed, v))
    return torch.linalg.vector_norm(_residual(w, v))


def _residual(w: Tensor, v: Tensor) -> Tensor:
    """(WWᵀ − I)v, without the matrix."""
    return w @ (w.T @ v) - v
