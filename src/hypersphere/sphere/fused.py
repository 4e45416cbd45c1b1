"""The reductions of `hypersphere.sphere.pairwise` by Triton kernels.

One registered operator computes the mean potentials of many matrices in a few launches, together with the gradient
with respect to the unit rows (the "pull"). The backward pass takes the pull through the normalization. The reference
is `pair_mean(unit(w))` of each matrix.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hypersphere import kernels
from hypersphere.kernels.pairwise_tiles import Shape, pull_places
from hypersphere.sphere.potentials import KINDS, floor, near2
from hypersphere.sphere.unit import inside_vmap, needs_gradient, to_full_precision

if TYPE_CHECKING:
    from hypersphere.kernels.pairwise import Law


def usable(matrices: Sequence[Tensor]) -> bool:
    """Whether all matrices are on one GPU, in single or half precision, not empty, and not inside torch.vmap."""
    first = matrices[0]
    return (
        kernels.runs_on(first)
        and not inside_vmap()
        and all(
            w.device == first.device and w.dtype in (torch.float32, torch.float16, torch.bfloat16) and w.numel() > 0
            for w in matrices
        )
    )


def fits_float16(kind: str, parameter: float, half_space: bool) -> bool:
    """Whether slopes fit into float16: those of a power of 6 or more do not, and need the reference."""
    return _law(kind, float(parameter), half_space) is not None


def pair_means(weights: Sequence[Tensor], kind: str, parameter: float, half_space: bool) -> Tensor:
    weights = [_with_dense_rows(to_full_precision(w)) for w in weights]
    return _pair_means(weights, kind, float(parameter), half_space, needs_gradient(*weights))[0]


def _with_dense_rows(w: Tensor) -> Tensor:
    """Make each row contiguous, in any order of its entries: a convolution may be channels-last."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if w.ndim in formats and w.is_contiguous(memory_format=formats[w.ndim]):
        return w
    return w.contiguous()


@cache
def _law(kind: str, parameter: float, half_space: bool) -> "Law | None":
    """The potential for the kernels; None if its slopes do not fit into float16."""
    from hypersphere.kernels.pairwise import Law

    potential = KINDS[kind](parameter, torch.float32)
    near = near2(torch.float32, potential.singular)
    chord2 = torch.tensor([near, 4 - near, 2.0], dtype=torch.float64)
    *ends, typical = potential(chord2, 4 - chord2)[1].tolist()
    # Slopes of all pairs that are not near must fit, times a power of two; those of orthogonal points without loss.
    scale = 2.0 ** math.floor(15 - math.log2(max(ends)))
    if typical * scale < 2**-12:
        return None
    return Law(kind, parameter, half_space, floor(torch.float32, parameter) ** 2, near, scale)


@cache
def _mean_weights(
    counts: tuple[int, ...], kind: str, parameter: float, half_space: bool, device: torch.device
) -> tuple[Tensor, Tensor]:
    """`weight` and `own` of mean = own + weight · sum for each matrix, as in `pair_mean`."""
    if not half_space:
        weight = [1 / (n * (n - 1)) for n in counts]
        own = [0.0 for _ in counts]
    else:
        poles = KINDS[kind](parameter, torch.float32)(torch.tensor(4.0), torch.tensor(0.0))[0].item()
        weight = [1 / (n * (2 * n - 1)) for n in counts]
        own = [poles / (2 * n - 1) for n in counts]
    both = torch.tensor([weight, own], dtype=torch.float64).to(device)
    return both[0], both[1]


@cache
def _gradient_factors(counts: tuple[int, ...], half_space: bool, device: torch.device) -> Tensor:
    pairs = [n * (2 * n - 1) if half_space else n * (n - 1) for n in counts]
    return torch.tensor([2 / count for count in pairs], dtype=torch.float32).to(device)


@torch.library.custom_op(
    "hypersphere::pair_means",
    mutates_args=(),
    schema="(Tensor[] weights, str kind, float parameter, bool half_space, bool with_grad) -> (Tensor, Tensor)",
)  # an explicit schema: torch 2.6 cannot infer one from Sequence[Tensor]
def _pair_means(
    weights: Sequence[Tensor], kind: str, parameter: float, half_space: bool, with_grad: bool
) -> tuple[Tensor, Tensor]:
    from hypersphere.kernels.pairwise import pair_sums

    law = _law(kind, parameter, half_space)
    assert law is not None, "`fits_float16` is checked before"
    sums, pull = pair_sums(weights, law, with_grad)
    weight, own = _mean_weights(tuple(map(len, weights)), kind, parameter, half_space, sums.device)
    return torch.addcmul(own, sums, weight).float(), pull


@_pair_means.register_fake
def _(weights, kind, parameter, half_space, with_grad):
    shapes = [Shape(len(w), w[0].numel()) for w in weights]
    size = pull_places(shapes)[-1] if with_grad else 0
    return weights[0].new_empty(len(weights)), weights[0].new_empty(size)


@torch.library.custom_op(
    "hypersphere::pair_means_backward",
    mutates_args=(),
    schema="(Tensor upstream, Tensor pull, Tensor[] weights, bool half_space) -> Tensor[]",
)
def _pair_means_backward(upstream: Tensor, pull: Tensor, weights: Sequence[Tensor], half_space: bool) -> list[Tensor]:
    from hypersphere.kernels.pairwise import weight_gradients

    factors = _gradient_factors(tuple(map(len, weights)), half_space, pull.device)
    return weight_gradients(weights, pull, upstream, factors)


@_pair_means_backward.register_fake
def _(upstream, pull, weights, half_space):
    return [torch.empty_like(w) for w in weights]


def _save_pull(ctx, inputs, output):
    weights, _, _, ctx.half_space, _ = inputs
    ctx.save_for_backward(output[1], *weights)
    ctx.set_materialize_grads(False)


def _gradients(ctx, upstream, _):
    pull, *weights = ctx.saved_tensors
    found = None if upstream is None else _pair_means_backward(upstream, pull, weights, ctx.half_space)
    return found, None, None, None, None


_pair_means.register_autograd(_gradients, setup_context=_save_pull)
