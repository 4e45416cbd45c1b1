"""Orthogonality of the weights (Bansal et al., 2018): neurons at right angles and of unit length."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from hypersphere.regularize.layers import Also, FixedNormals, Weight, WeightRegularizer, check_count
from hypersphere.regularize.selection import Where
from hypersphere.sphere.unit import to_full_precision, unit, without_autocast
from hypersphere.util.random_numbers import POWER

Kind = Literal["soft", "srip"]


class OrthogonalityRegularizer(WeightRegularizer):
    """Distance of each layer's neurons from orthonormal, summed over layers (Bansal et al., 2018).

    For neurons W (N × D), "soft" is ‖WWᵀ − I‖²_F. "srip", the spectral restricted isometry property, is ‖WWᵀ − I‖₂, the
    largest absolute eigenvalue. As published, W is not normalized, so lengths are pulled to 1. If N > D, neurons cannot
    all be orthogonal, and WᵀW − I is used instead, so that 0 can be reached. Then ‖·‖²_F is smaller by the constant
    N − D, with the same gradient, and ‖·‖₂ omits the eigenvalue −1, which training cannot change.

    SRIP uses the power method from a fixed random vector. Its value is ‖(WWᵀ − I)v‖ for the vector v found, at most
    the true norm. Its gradient treats v as constant, which is exact once the method has converged.

    Orthonormal neurons have value and gradient 0; a zero neuron has gradient 0 (with SRIP, once converged). Half
    precision is computed and returned in float32. The state_dict is empty.

    Args:
        model: The model to regularize.
        kind: "soft" or "srip".
        weight: Factor of the sum, at least 0.
        where: Layers to regularize: names of sub-networks ("projector"), patterns ("encoder.layer4.*"), modules,
            classes of modules, several of these, or a function of (name, module). Default: all trainable layers with
            neurons.
        iterations: Steps of the power method, each with two products with W. For "srip" only.
        seed: Seed of the vector that the power method starts from.
        exclude: Layers to leave out, in the same ways as `where`.
        also: Other parameters by name, such as {"embed.weight": "rows"}; see `hs.regularize.WeightRegularizer`.
        every: Compute it only in every n-th call, n times as strong.

    Returns:
        Calling it returns a scalar tensor, differentiable with respect to the weights.

    Raises:
        TypeError: If `model` is not a module, or an option has the wrong type.
        ValueError: If no trainable layer matches `where`, or an option is out of range.

    Example:
        >>> layer = torch.nn.Linear(4, 3)
        >>> _ = torch.nn.init.orthogonal_(layer.weight)
        >>> abs(round(hs.OrthogonalityRegularizer(layer)().item(), 4))
        0.0
    """

    def __init__(
        self,
        model: nn.Module,
        kind: Kind = "soft",
        weight: Weight = 1.0,
        where: Where = None,
        iterations: int = 10,
        seed: int = 0,
        *,
        exclude: Where = None,
        also: Also | None = None,
        every: int = 1,
    ) -> None:
        super().__init__(model, weight, where, exclude, also, every)
        if kind not in get_args(Kind):
            raise ValueError(f"kind must be 'soft' or 'srip', got {kind!r}")
        check_count("iterations", iterations)
        self.kind, self.iterations = kind, iterations
        self._normals = FixedNormals(1, seed, POWER)

    def measure(self, matrices: Sequence[Tensor]) -> Tensor:
        return torch.stack([self._of_matrix(to_full_precision(w).flatten(1)) for w in matrices])

    def _of_matrix(self, w: Tensor) -> Tensor:
        w = w if len(w) <= w.shape[1] else w.T
        with without_autocast(w):
            if self.kind == "soft":
                return _soft(w)
            return _srip(w, self._normals(len(w), w).flatten(), self.iterations)

    def extra_repr(self) -> str:
        return f"{self._chosen_in_words()}, kind={self.kind}, weight={self.weight}"


def _soft(w: Tensor) -> Tensor:
    identity = torch.eye(len(w), dtype=w.dtype, device=w.device)
    return (w @ w.T - identity).square().sum()


def _srip(w: Tensor, start: Tensor, iterations: int) -> Tensor:
    """‖Av‖ of A = WWᵀ − I, rather than vᵀAv, which vanishes if v mixes the eigenvectors of λ and −λ."""
    fixed, v = w.detach(), unit(start)
    for _ in range(iterations):
        v = unit(_residual(fixed, v))
    return torch.linalg.vector_norm(_residual(w, v))


def _residual(w: Tensor, v: Tensor) -> Tensor:
    """(WWᵀ − I)v, without the matrix."""
    return w @ (w.T @ v) - v
