"""Reductions over pairs of points: the mean potential, and the log-sum-exp and the argmax of each row of cosines.

They work tile by tile, so memory is O(N·D) for any N. A single tile with every pair is the dense computation. On a GPU
with Triton, `hypersphere.kernels` computes the first two. Each is one registered operator, opaque to torch.compile.

Shapes: x is N × D, y is M × D, both with unit (or zero) rows; a tile has T × T pairs.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from hypersphere.kernels.pairwise_tiles import spans
from hypersphere.sphere import fused
from hypersphere.sphere.potentials import KINDS, Gaussian, HalfSpace, Potential, near2
from hypersphere.sphere.precision import full_precision
from hypersphere.sphere.unit import needs_gradient, unit, without_autocast

NEAR_CHUNK = 1 << 22  # elements of y ∓ x held at once
CROWDED = 4096  # a tile with more near pairs than this, and than 1/64 of its pairs, is computed in float64


def pair_means(weights: Sequence[Tensor], kind: str, parameter: float, *, half_space: bool = False) -> Tensor:
    """Mean potential of the rows of each matrix. Rows are flattened and normalized."""
    _reject_forward_mode(*weights)
    if fused.usable(weights) and fused.fits_float16(kind, parameter, half_space):
        return fused.pair_means(weights, kind, parameter, half_space)
    return torch.stack([pair_mean(unit(w.flatten(1)), kind, parameter, half_space=half_space) for w in weights])


def pair_mean(x: Tensor, kind: str, parameter: float, *, half_space: bool = False, tile: int | None = None) -> Tensor:
    """Mean of a potential over the ordered pairs i ≠ j of the rows of x, or of its rows and their negatives."""
    _reject_forward_mode(x)
    arguments = x, kind, float(parameter), half_space, needs_gradient(x), tile or _tile_size(x)
    return _EagerPairMean.apply(*arguments) if _is_eager(x) else _pair_mean(*arguments)[0]


def _is_eager(x: Tensor) -> bool:
    """Whether x is computed at once on the CPU, so that an operator that torch.compile knows has no use.

    The first call of such an operator imports the compiler, which takes a second.
    """
    plain = type(x) in (Tensor, torch.nn.Parameter) and x.device.type == "cpu"
    return plain and not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()


def row_logsumexp(
    x: Tensor, y: Tensor, scale: float | Tensor, *, exclude_self: bool = False, tile: int | None = None
) -> Tensor:
    """log Σⱼ exp(scale · xᵢ·yⱼ) for each i; `exclude_self` leaves out j = i. A tensor `scale` has a gradient."""
    if isinstance(scale, Tensor):
        return _row_logsumexp_with_learned_scale(x, y, scale, exclude_self)
    _reject_forward_mode(x, y)
    return _row_logsumexp(x, y, float(scale), exclude_self, tile or _tile_size(x))


def _row_logsumexp_with_learned_scale(x: Tensor, y: Tensor, scale: Tensor, exclude_self: bool) -> Tensor:
    """With all pairs in memory, by differentiable operations of torch."""
    with without_autocast(x):
        logits = scale * (x @ y.T)
    if exclude_self:
        same = torch.eye(x.shape[0], y.shape[0], dtype=torch.bool, device=x.device)
        logits = logits.masked_fill(same, -torch.inf)
    return logits.logsumexp(dim=1)


def nearest(x: Tensor, *, tile: int | None = None) -> Tensor:
    """Index of the other row with the greatest cosine, for each row of x; the first if there are several."""
    return _nearest(x.detach(), tile or _tile_size(x))


def _reject_forward_mode(*tensors: Tensor) -> None:
    """Reject forward-mode derivatives, which a registered operator would lose silently."""
    if not torch.compiler.is_compiling() and any(unpack_dual(x).tangent is not None for x in tensors):
        raise NotImplementedError("pairwise measures have no forward-mode derivative (torch.func.jvp): use backward()")


def _tile_size(x: Tensor) -> int:
    if x.device.type != "cpu":
        return 4096
    return 256 if len(x) <= 1024 else 512  # fits the cache of a core


class Tile(NamedTuple):
    """Pairs of some x with some y: cosines, squared distances, and the pairs so near ±1 that y ∓ x is used."""

    x: Tensor
    y: Tensor
    cosine: Tensor
    chord2: Tensor
    anti2: Tensor
    rows: Tensor
    cols: Tensor
    sign: Tensor


def _tile(x: Tensor, y: Tensor, singular: bool, diagonal: bool) -> Tile:
    """Cosines and distances of x and y; `diagonal` if they are the same points, so that i = j is not a pair."""
    cosine = x @ y.T
    if diagonal:
        cosine.fill_diagonal_(0)
    rows, cols = torch.nonzero(cosine.abs() > 1 - near2(x.dtype, singular) / 2, as_tuple=True)
    if len(rows) > max(CROWDED, cosine.numel() // 64) and x.dtype == torch.float32 and x.device.type != "mps":
        return _crowded_tile(x.double(), y.double(), diagonal)
    sign = cosine[rows, cols].sign()
    chord2, anti2 = 2 - 2 * cosine, 2 + 2 * cosine
    if len(rows):
        gap2 = torch.cat([gap.square().sum(1) for _, gap in _gaps(x, y, rows, cols, sign)])
        chord2[rows, cols] = torch.where(sign > 0, gap2, 4 - gap2)
        anti2[rows, cols] = torch.where(sign > 0, 4 - gap2, gap2)
    return Tile(x, y, cosine, chord2, anti2, rows, cols, sign)


def _crowded_tile(x: Tensor, y: Tensor, diagonal: bool) -> Tile:
    """The tile in float64, which separates float32 points down to 3e-8, and is faster than many y ∓ x."""
    cosine = x @ y.T
    norms = x.square().sum(1, keepdim=True) + y.square().sum(1)  # 2 up to the rounding of float32
    norms = torch.where(x.any(1, keepdim=True) & y.any(1), norms, 2)  # a zero row is orthogonal to all
    if diagonal:
        cosine.fill_diagonal_(0)
    none = torch.empty(0, dtype=torch.long, device=x.device)
    return Tile(x, y, cosine, norms - 2 * cosine, norms + 2 * cosine, none, none, none.to(x.dtype))


def _gaps(x: Tensor, y: Tensor, rows: Tensor, cols: Tensor, sign: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """y ∓ x of the near pairs, in chunks."""
    chunk = max(1, NEAR_CHUNK // x.shape[1])
    for start in range(0, len(rows), chunk):
        part = slice(start, start + chunk)
        yield part, y[cols[part]] - sign[part, None] * x[rows[part]]


def _pull(tile: Tile, slope: Tensor, on_x: Tensor, on_y: Tensor | None = None) -> None:
    """Add the gradients Σⱼ slopeᵢⱼ yⱼ to on_x and Σᵢ slopeᵢⱼ xᵢ to on_y, up to multiples of the point itself.

    The gradient of `unit` removes such multiples, so near pairs may use yⱼ ∓ xᵢ, which does not cancel, and exact
    duplicates contribute full_precision zero. `slope` is overwritten.
    """
    x, y = tile.x, tile.y
    if x.dtype != on_x.dtype:
        return _pull_crowded(tile, slope, on_x, on_y)
    weight = slope[tile.rows, tile.cols]
    slope[tile.rows, tile.cols] = 0
    on_x.addmm_(slope, y)
    if on_y is not None:
        on_y.addmm_(slope.T, x)
    for part, gap in _gaps(x, y, tile.rows, tile.cols, tile.sign):
        gap *= weight[part, None]
        on_x.index_add_(0, tile.rows[part], gap)
        if on_y is not None:
            on_y.index_add_(0, tile.cols[part], gap * -tile.sign[part, None])
    return None


def _pull_crowded(tile: Tile, slope: Tensor, on_x: Tensor, on_y: Tensor | None) -> None:
    """`_pull` by Σⱼ slopeᵢⱼ (yⱼ ∓ xᵢ) in float64, with the sign of each pair's cosine."""
    slope[_are_parallel(tile)] = 0  # duplicates and opposites have no gradient
    sided = slope * tile.cosine.sign()
    on_x += (slope @ tile.y - sided.sum(1, keepdim=True) * tile.x).to(on_x.dtype)
    if on_y is not None:
        on_y += (slope.T @ tile.x - sided.sum(0)[:, None] * tile.y).to(on_y.dtype)


def _are_parallel(tile: Tile) -> Tensor:
    """Which pairs are full_precision equal or opposite; rounding gives them a squared distance of up to 1e-14."""
    close = torch.minimum(tile.chord2, tile.anti2) < 1e-12
    if not close.any():
        return close
    points = torch.cat([tile.x, tile.y, -tile.y])
    x, same, opposite = points.unique(dim=0, return_inverse=True)[1].split([len(tile.x), len(tile.y), len(tile.y)])
    return (x[:, None] == same) | (x[:, None] == opposite)


def _mean_and_gradient(
    x: Tensor, kind: str, parameter: float, half_space: bool, with_grad: bool, tile: int
) -> tuple[Tensor, Tensor]:
    """The mean and, in the same pass, its gradient: ∂/∂xᵢ = 2/pairs · Σⱼ φ′(cᵢⱼ) xⱼ."""
    potential: Potential = KINDS[kind](parameter, x.dtype)
    n = len(x)
    own = 0.0
    pairs = n * (n - 1)
    if half_space:  # ±xᵢ with ±xⱼ, and xᵢ with its own negative at the constant φ(−1)
        own = float(potential(x.new_tensor(4.0), x.new_tensor(0.0))[0]) / (2 * n - 1)
        potential, pairs = HalfSpace(potential), n * (2 * n - 1)
    value = x.new_zeros(())
    grad = torch.zeros_like(x) if with_grad else x.new_empty(0)
    tiles = spans(n, tile)
    with full_precision(x):
        for a, rows in enumerate(tiles):
            for cols in tiles[a:]:  # tiles above the diagonal count twice, by symmetry
                diagonal = cols == rows
                if isinstance(potential, Gaussian):
                    total = _gaussian_tile(x, rows, cols, potential.t, grad if with_grad else None, 4 / pairs)
                    if total is not None:
                        value += total * ((1 if diagonal else 2) / pairs)
                        continue
                pieces = _tile(x[rows], x[cols], potential.singular, diagonal)
                phi, slope = potential(pieces.chord2, pieces.anti2)
                if diagonal:
                    phi.fill_diagonal_(0)
                    slope.fill_diagonal_(0)
                value += phi.sum() * ((1 if diagonal else 2) / pairs)
                if with_grad:
                    slope *= 2 / pairs
                    _pull(pieces, slope, grad[rows], None if diagonal else grad[cols])
    return value + own, grad


def _gaussian_tile(x: Tensor, rows: slice, cols: slice, t: float, grad: Tensor | None, share: float) -> Tensor | None:
    """Σ exp(−t ‖xᵢ − xⱼ‖²) over a tile, in place in one matrix; adds share · t · Σⱼ φᵢⱼ xⱼ to the gradient.

    None if some pairs are so near that they need y ∓ x: the general way takes such a tile.
    """
    phi, diagonal = x[rows] @ x[cols].T, rows == cols
    if diagonal:
        phi.fill_diagonal_(0)
    least, most = phi.aminmax()
    if max(-least, most) > 1 - near2(x.dtype, singular=False) / 2:
        return None
    phi.sub_(1).mul_(2 * t).exp_()
    if diagonal:
        phi.fill_diagonal_(0)
    if grad is not None:
        grad[rows].addmm_(phi, x[cols], alpha=share * t)
        if not diagonal:
            grad[cols].addmm_(phi.T, x[rows], alpha=share * t)
    return phi.sum()


@torch.library.custom_op("hypersphere::pair_mean", mutates_args=())
def _pair_mean(
    x: Tensor, kind: str, parameter: float, half_space: bool, with_grad: bool, tile: int
) -> tuple[Tensor, Tensor]:
    return _mean_and_gradient(x, kind, parameter, half_space, with_grad, tile)


class _EagerPairMean(torch.autograd.Function):
    """The same without an operator. Second derivatives are an error, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *arguments: Any) -> Tensor:
        value, grad = _mean_and_gradient(x, *arguments)
        ctx.save_for_backward(x, grad)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, grad = ctx.saved_tensors
        return _Once.apply(upstream * grad, x), None, None, None, None, None


class _Once(torch.autograd.Function):
    """The gradient by x, which cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, x: Tensor) -> Tensor:
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        raise RuntimeError("pairwise measures have no second derivative (autograd would need one)")


@_pair_mean.register_fake
def _(x, kind, parameter, half_space, with_grad, tile):
    return x.new_empty(()), torch.empty_like(x) if with_grad else x.new_empty(0)


def _save_gradient(ctx, inputs, output):
    ctx.save_for_backward(output[1])
    ctx.set_materialize_grads(False)


def _scale_gradient(ctx, upstream, _):
    (grad,) = ctx.saved_tensors
    return (None if upstream is None else _pair_mean_backward(upstream, grad)), None, None, None, None, None


@torch.library.custom_op("hypersphere::pair_mean_backward", mutates_args=())
def _pair_mean_backward(upstream: Tensor, grad: Tensor) -> Tensor:
    """An operator without a gradient, so that second derivatives are an error instead of a wrong number."""
    return upstream * grad


@_pair_mean_backward.register_fake
def _(upstream, grad):
    return torch.empty_like(grad)


_pair_mean.register_autograd(_scale_gradient, setup_context=_save_gradient)


@torch.library.custom_op("hypersphere::row_logsumexp", mutates_args=())
def _row_logsumexp(x: Tensor, y: Tensor, scale: float, exclude_self: bool, tile: int) -> Tensor:
    if fused.usable([x, y]):
        from hypersphere.kernels import pairwise

        return pairwise.row_logsumexp(x.contiguous(), y.contiguous(), scale, exclude_self)
    total = x.new_full((len(x),), -torch.inf)
    with full_precision(x):
        for rows in spans(len(x), tile):
            for cols in spans(len(y), tile):
                logits = scale * (x[rows] @ y[cols].T)
                if exclude_self and rows.start == cols.start:
                    logits.fill_diagonal_(-torch.inf)
                total[rows] = torch.logaddexp(total[rows], logits.logsumexp(dim=1))
    return total


@torch.library.custom_op("hypersphere::row_logsumexp_backward", mutates_args=())
def _row_logsumexp_backward(
    x: Tensor, y: Tensor, total: Tensor, upstream: Tensor, scale: float, exclude_self: bool, tile: int
) -> tuple[Tensor, Tensor]:
    if fused.usable([x, y]):
        from hypersphere.kernels import pairwise

        points, upstream = (x.contiguous(), y.contiguous()), upstream.contiguous()
        near = near2(torch.float32, singular=False)
        return pairwise.row_logsumexp_backward(*points, total, upstream, scale, exclude_self, near)
    grad_x, grad_y = torch.zeros_like(x), torch.zeros_like(y)
    with full_precision(x):
        for rows in spans(len(x), tile):
            for cols in spans(len(y), tile):
                diagonal = exclude_self and rows.start == cols.start
                pieces = _tile(x[rows], y[cols], singular=False, diagonal=diagonal)
                weight = (scale * pieces.cosine - total[rows, None]).exp() * (scale * upstream[rows, None])
                if diagonal:
                    weight.fill_diagonal_(0)
                _pull(pieces, weight, grad_x[rows], grad_y[cols])
    return grad_x, grad_y


@_row_logsumexp.register_fake
def _(x, y, scale, exclude_self, tile):
    return x.new_empty(x.shape[0])  # not len(x), which torch.compile would treat as a constant


@_row_logsumexp_backward.register_fake
def _(x, y, total, upstream, scale, exclude_self, tile):
    return torch.empty_like(x), torch.empty_like(y)


def _save_rows(ctx, inputs, output):
    x, y, ctx.scale, ctx.exclude_self, ctx.tile = inputs
    ctx.save_for_backward(x, y, output)


def _pull_rows(ctx, upstream):
    grads = _row_logsumexp_backward(*ctx.saved_tensors, upstream, ctx.scale, ctx.exclude_self, ctx.tile)
    return *grads, None, None, None


_row_logsumexp.register_autograd(_pull_rows, setup_context=_save_rows)


@torch.library.custom_op("hypersphere::nearest", mutates_args=())
def _nearest(x: Tensor, tile: int) -> Tensor:
    best = x.new_full((len(x),), -torch.inf)
    place = torch.zeros(len(x), dtype=torch.long, device=x.device)
    with full_precision(x):
        for rows in spans(len(x), tile):
            for cols in spans(len(x), tile):
                cosine = x[rows] @ x[cols].T
                if cols == rows:
                    cosine.fill_diagonal_(-torch.inf)
                value, column = cosine.max(dim=1)
                nearer = value > best[rows]
                best[rows] = torch.where(nearer, value, best[rows])
                place[rows] = torch.where(nearer, column + cols.start, place[rows])
    return place


@_nearest.register_fake
def _(x, tile):
    return x.new_empty(x.shape[0], dtype=torch.long)


def _register_vmap_loop(operator: Any) -> None:
    """Register torch.vmap for an operator: it loops over the matrices."""

    @operator.register_vmap
    def _(info: Any, dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        def at(place: int) -> Iterator[Any]:
            return (a if d is None else a.select(d, place) for a, d in zip(args, dims, strict=True))

        found = [operator(*at(place)) for place in range(info.batch_size)]
        if isinstance(found[0], Tensor):
            return torch.stack(found), 0
        return tuple(map(torch.stack, zip(*found, strict=True))), (0,) * len(found[0])


for _operator in (_pair_mean, _row_logsumexp, _nearest):
    _register_vmap_loop(_operator)
