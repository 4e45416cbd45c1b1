"""BatchNorm with statistics of each view, and the residual and ReLU after it: launches and gradient.

The reference is `hypersphere.nn.norm`. The kernels, and the names of shapes, are in `norm_kernels`.
"""

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from hypersphere.kernels.norm_kernels import (
    apply_kernel,
    gradient_kernel,
    gradient_statistics_kernel,
    gradient_sums_kernel,
    moments_kernel,
    statistics_kernel,
)

TILE_C = 64  # channels; rows (M), warps and tiles in flight (UNROLL) were tuned on an H200
MOMENTS: dict[str, Any] = {"TILE_M": 16, "TILE_C": TILE_C, "UNROLL": 4, "num_warps": 4}
GRADIENT_SUMS: dict[str, Any] = {"TILE_M": 16, "TILE_C": TILE_C, "UNROLL": 2, "num_warps": 4}
APPLY: dict[str, Any] = {"TILE_M": 32, "TILE_C": TILE_C, "num_warps": 4}
GRADIENT: dict[str, Any] = {"TILE_M": 32, "TILE_C": TILE_C, "num_warps": 4}
PROGRAMS = 1056  # for sums: eight for each of 132 multiprocessors


class Norm(NamedTuple):
    """The tensors and options of a BatchNorm layer."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor
    tracked: Tensor
    eps: float
    momentum: float
    views: int
    relu: bool
    fork: bool = False


class Sums(NamedTuple):
    """Partial sums of y − first and its square, V × P × 2 × C, over the tiles of each of P programs."""

    partial: Tensor
    first: Tensor


class Grid(NamedTuple):
    """V, M, C, and the grids of programs for them."""

    views: int
    rows: int
    channels: int

    def tiles(self, how: dict[str, Any]) -> int:
        return triton.cdiv(self.rows, how["TILE_M"])

    def whole(self, how: dict[str, Any]) -> tuple[int, int, int]:
        """One program for each tile."""
        return self.tiles(how), triton.cdiv(self.channels, TILE_C), self.views

    def shared(self, how: dict[str, Any]) -> tuple[int, int, int]:
        """A few programs for each channel and view, which share the tiles."""
        columns = triton.cdiv(self.channels, TILE_C)
        most = max(1, PROGRAMS // (self.views * columns))
        return min(triton.cdiv(self.tiles(how), how["UNROLL"]), most), columns, self.views


def grid_of(x: Tensor, views: int) -> Grid:
    channels = x.shape[1]
    return Grid(views, x.numel() // channels // views, channels)


def takes(x: Tensor) -> bool:
    """Whether x is channels last, in single or half precision, with offsets that fit into 32 bits."""
    memory = torch.channels_last if x.ndim == 4 else torch.contiguous_format
    small = x.dtype in (torch.float32, torch.bfloat16, torch.float16) and x.numel() < 2**31
    return x.ndim in (2, 4) and small and x.is_contiguous(memory_format=memory)


def like_input(x: Tensor, dy: Tensor) -> Tensor:
    return dy.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else dy.contiguous()


def same_memory(x: Tensor) -> Tensor:
    """A tensor with the memory of x, which unlike a view does not keep x alive (x may hold it)."""
    return x.new_empty(0).set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())


class Statistics(NamedTuple):
    """V × C means and 1/σ."""

    mean: Tensor
    rstd: Tensor


class Shortcut(NamedTuple):
    """The norm of a residual, which has not been applied yet."""

    norm: Norm
    statistics: Statistics


def normalize(
    x: Tensor, residual: Tensor | None, statistics: Statistics, norm: Norm, shortcut: Shortcut | None = None
) -> Tensor:
    """Normalize by given statistics, in one pass."""
    _, rows, channels = grid = grid_of(x, norm.views)
    y = torch.empty_like(x)
    own = (*statistics, norm.weight, norm.bias)
    other = own if shortcut is None else (*shortcut.statistics, shortcut.norm.weight, shortcut.norm.bias)
    kind = 0 if residual is None else 1 if shortcut is None else 2
    with torch.cuda.device_of(x):
        apply_kernel[grid.whole(APPLY)](
            x, y, x if residual is None else residual, *own, *other, rows, channels,
            RELU=norm.relu, RESIDUAL=kind, **APPLY,
        )  # fmt: skip
    return y


def moments_of(x: Tensor, grid: Grid) -> Sums:
    programs = grid.shared(MOMENTS)
    partial = torch.empty(grid.views, programs[0], 2, grid.channels, device=x.device)
    moments_kernel[programs](x, partial, grid.rows, grid.channels, grid.tiles(MOMENTS), **MOMENTS)
    return Sums(partial, x)


def statistics_of(sums: Sums, grid: Grid, norm: Norm) -> Statistics:
    """Statistics from sums; also updates the running statistics."""
    views, rows, channels = grid
    mean, rstd = torch.empty(2, views, channels, device=sums.partial.device)
    stride = 0 if sums.first.ndim == 1 else rows * channels
    statistics_kernel[1, triton.cdiv(channels, 8)](
        sums.first, sums.partial, mean, rstd, norm.running_mean, norm.running_var, norm.tracked,
        views, rows, channels, sums.partial.shape[1], stride, norm.eps, norm.momentum, TILE_C=8,
    )  # fmt: skip
    return Statistics(mean, rstd)


class Pull(NamedTuple):
    """The gradient before the ReLU, and what follows from its sums over rows.

    g is masked by the ReLU only if there is a residual, or y was used twice.
    """

    g: Tensor
    coefficients: Tensor  # V × 2 × C: means of g and g x̂ / σ
    weight: Tensor
    bias: Tensor


def sum_gradients(
    x: Tensor, y: Tensor | None, pulls: list[Tensor], statistics: Statistics, norm: Norm, rows: int
) -> Pull:
    """From one gradient of the output, or the sum of two; y is given if it includes a residual.

    rows: those of a view that the statistics come from; more than x has if others have no gradient.
    """
    views, _, channels = grid = grid_of(x, norm.views)
    dy, residual, fork = pulls[0], y is not None, len(pulls) == 2
    g = torch.empty_like(dy) if residual or fork else dy
    programs, known = grid.shared(GRADIENT_SUMS), (*statistics, norm.weight, norm.bias)
    partial = torch.empty(views, programs[0], 2, channels, device=x.device)
    gradient_sums_kernel[programs](
        x, x if y is None else y, dy, pulls[-1], g, partial, *known, grid.rows, channels, grid.tiles(GRADIENT_SUMS),
        RELU=norm.relu, RESIDUAL=residual, FORK=fork, **GRADIENT_SUMS,
    )  # fmt: skip
    coefficients = torch.empty(views, 2, channels, device=x.device)
    dweight, dbias = torch.empty_like(norm.weight), torch.empty_like(norm.bias)
    gradient_statistics_kernel[1, triton.cdiv(channels, 8)](
        partial, statistics.rstd, coefficients, dweight, dbias, views, rows, channels, programs[0], TILE_C=8
    )
    return Pull(g, coefficients, dweight, dbias)


def _gradients(
    x: Tensor, y: Tensor | None, pulls: list[Tensor], statistics: Statistics, norm: Norm
) -> tuple[Tensor, Pull]:
    """(gradient of x, the others)"""
    grid = grid_of(x, norm.views)
    found = sum_gradients(x, y, pulls, statistics, norm, grid.rows)
    dx, masked = torch.empty_like(x), y is not None or len(pulls) == 2
    gradient_kernel[grid.whole(GRADIENT)](
        x, found.g, dx, found.coefficients, *statistics, norm.weight, norm.bias, grid.rows, grid.channels,
        RELU=norm.relu and not masked, **GRADIENT,
    )  # fmt: skip
    return dx, found


class _NormAct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        residual: Tensor | None,
        norm: Norm,
        other: Norm | None,
        sums: Sums | None,
        *weights: Tensor,
    ) -> Any:
        grid = grid_of(x, norm.views)
        statistics = statistics_of(sums or moments_of(x, grid), grid, norm)
        shortcut = None
        if other is not None and residual is not None:
            shortcut = Shortcut(other, statistics_of(moments_of(residual, grid), grid, other))
        y = normalize(x, residual, statistics, norm, shortcut)
        ctx.norms, ctx.added = (norm, other), residual is not None
        ctx.weights = len(weights)
        second = () if shortcut is None else (residual, *shortcut.statistics)
        ctx.save_for_backward(*weights, x, y if ctx.added else None, *statistics, *second)
        ctx.set_materialize_grads(False)
        return (y, same_memory(y)) if norm.fork else y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        weights, (x, y, mean, rstd, *second) = ctx.saved_tensors[: ctx.weights], ctx.saved_tensors[ctx.weights :]
        norm, other = ctx.norms[0]._replace(weight=weights[0], bias=weights[1]), ctx.norms[1]
        if other is not None:
            other = other._replace(weight=weights[2], bias=weights[3])
        pulls = [like_input(x, dy) for dy in upstream if dy is not None]
        if not pulls:
            return (None,) * (7 if other is None else 9)
        dx, found = _gradients(x, y, pulls, Statistics(mean, rstd), norm)
        if other is None:
            return dx, found.g if ctx.added else None, None, None, None, found.weight, found.bias
        residual, *statistics = second
        dr, beside = _gradients(residual, None, [found.g], Statistics(*statistics), other)
        return dx, dr, None, None, None, found.weight, found.bias, beside.weight, beside.bias


def batch_norm(
    x: Tensor, residual: Tensor | None, norm: Norm, *, other: Norm | None = None, sums: Sums | None = None
) -> Any:
    """BatchNorm in training, with statistics of each view; updates the running statistics. Differentiable once.

    `other` is the norm of the residual, if it has not been applied yet. `sums` are those of x, if known. Returns y or,
    with `norm.fork`, y twice: for two uses, whose gradients the backward pass adds.
    """
    weights = (norm.weight, norm.bias) if other is None else (norm.weight, norm.bias, other.weight, other.bias)
    with torch.cuda.device_of(x):
        return _NormAct.apply(x, residual, norm, other, sums, *weights)
