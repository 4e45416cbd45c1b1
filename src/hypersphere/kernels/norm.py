"""BatchNorm of each view by itself, with the residual and the ReLU after it, as few passes over memory (Triton).

The reference is `hypersphere.nn.norm`. Shapes: x is V (views) × M (rows: images × pixels) × C (channels, last in
memory). A pass of sums walks the rows from the end, the pass after it from the beginning: what the first read last is
still in the cache.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from hypersphere.kernels import on_device_of

TILE_C = 64  # channels; rows (M), warps and tiles in flight at once (UNROLL) were found by trying, on an H200
MOMENTS: dict[str, Any] = {"TILE_M": 16, "TILE_C": TILE_C, "UNROLL": 4, "num_warps": 4}
GRADIENT_SUMS: dict[str, Any] = {"TILE_M": 16, "TILE_C": TILE_C, "UNROLL": 2, "num_warps": 4}
APPLY: dict[str, Any] = {"TILE_M": 32, "TILE_C": TILE_C, "num_warps": 4}
GRADIENT: dict[str, Any] = {"TILE_M": 32, "TILE_C": TILE_C, "num_warps": 4}
PROGRAMS = 1056  # of a pass of sums: eight for each of 132 multiprocessors
PARTS = tl.constexpr(128)  # partial sums that are added at once


@triton.jit
def _pixels(tile, c, M, C, TILE_M: tl.constexpr):
    """Offsets of a tile of one view, and which of them exist; a tile before the first has none."""
    row = tile * TILE_M + tl.arange(0, TILE_M)
    return row[:, None] * C + c[None, :], ((row >= 0) & (row < M))[:, None] & (c < C)[None, :]


@triton.jit
def _channels(C, TILE_C: tl.constexpr):
    c = tl.program_id(1) * TILE_C + tl.arange(0, TILE_C)
    return c, c < C


@triton.jit(do_not_specialize=["tiles"])
def moments_kernel(x, partial, M, C, tiles, UNROLL: tl.constexpr, TILE_M: tl.constexpr, TILE_C: tl.constexpr):
    """Sums of x − x₀ and its square over every P-th tile; x₀ is the view's first row, so that nothing cancels."""
    view = tl.program_id(2)
    c, real = _channels(C, TILE_C)
    x += view.to(tl.int64) * M * C
    first = tl.load(x + c, mask=real, other=0).to(tl.float32)
    total = tl.zeros((TILE_M, TILE_C), tl.float32)
    square = tl.zeros((TILE_M, TILE_C), tl.float32)
    for place in range(tl.program_id(0), tl.cdiv(tiles, UNROLL), tl.num_programs(0)):
        for one_of in tl.static_range(UNROLL):
            at, inside = _pixels(tiles - 1 - (place * UNROLL + one_of), c, M, C, TILE_M)
            gap = tl.where(inside, tl.load(x + at, mask=inside, other=0).to(tl.float32) - first[None, :], 0)
            total += gap
            square += gap * gap
    store_sums(partial, tl.sum(total, 0), tl.sum(square, 0), view, c, real, C)


@triton.jit
def store_sums(partial, one, two, view, c, real, C):
    """partial is V × P × 2 × C."""
    row = (view * tl.num_programs(0) + tl.program_id(0)) * 2
    tl.store(partial + row * C + c, one, mask=real)
    tl.store(partial + (row + 1) * C + c, two, mask=real)


@triton.jit
def _sums(partial, view, c, real, C, programs, TILE_C: tl.constexpr):
    one = tl.zeros((PARTS, TILE_C), tl.float32)
    two = tl.zeros((PARTS, TILE_C), tl.float32)
    for start in range(0, programs, PARTS):
        p = start + tl.arange(0, PARTS)
        at = ((view * programs + p) * 2)[:, None] * C + c[None, :]
        inside = (p < programs)[:, None] & real[None, :]
        one += tl.load(partial + at, mask=inside, other=0)
        two += tl.load(partial + at + C, mask=inside, other=0)
    return tl.sum(one, 0), tl.sum(two, 0)


@triton.jit(do_not_specialize=["V", "programs", "stride"])
def statistics_kernel(
    first, partial, mean, rstd, running_mean, running_var, tracked, V, M, C, programs, stride, eps, momentum,
    TILE_C: tl.constexpr,
):  # fmt: skip
    """Mean and 1/σ of each view and channel; running statistics as if the views came one after the other.

    `first` is what was subtracted before summing, `stride` from one view's to the next's.
    """
    c, real = _channels(C, TILE_C)
    average = tl.load(running_mean + c, mask=real)
    variance = tl.load(running_var + c, mask=real)
    for view in range(V):
        one, two = _sums(partial, view, c, real, C, programs, TILE_C)
        one, two = one / M, two / M
        var = tl.maximum(two - one * one, 0, propagate_nan=tl.PropagateNan.ALL)
        centre = tl.load(first + c, mask=real, other=0).to(tl.float32) + one
        tl.store(mean + view * C + c, centre, mask=real)
        tl.store(rstd + view * C + c, 1 / tl.sqrt(var + eps), mask=real)
        average += momentum * (centre - average)
        variance += momentum * (var * (M / (M - 1.0)) - variance)
        first += stride
    tl.store(running_mean + c, average, mask=real)
    tl.store(running_var + c, variance, mask=real)
    if tl.program_id(1) == 0:
        tl.store(tracked, tl.load(tracked) + V)


@triton.jit
def apply_kernel(
    x, y, residual, mean, rstd, weight, bias, r_mean, r_rstd, r_weight, r_bias, M, C,
    RELU: tl.constexpr, RESIDUAL: tl.constexpr, TILE_M: tl.constexpr, TILE_C: tl.constexpr,
):  # fmt: skip
    """y = ReLU(γ (x − mean)/σ + β + residual); the residual none (0), as it is (1), or itself to be normalized (2)."""
    view = tl.program_id(2)
    c, real = _channels(C, TILE_C)
    at, inside = _pixels(tl.program_id(0), c, M, C, TILE_M)
    at += view.to(tl.int64) * M * C
    scale, shift = _affine(mean, rstd, weight, bias, view, c, real, C)
    out = tl.load(x + at, mask=inside, other=0).to(tl.float32) * scale[None, :] + shift[None, :]
    if RESIDUAL:
        other = tl.load(residual + at, mask=inside, other=0).to(tl.float32)
        if RESIDUAL == 2:
            scale, shift = _affine(r_mean, r_rstd, r_weight, r_bias, view, c, real, C)
            other = other * scale[None, :] + shift[None, :]
        out += other
    if RELU:
        out = tl.maximum(out, 0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y + at, out.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _affine(mean, rstd, weight, bias, view, c, real, C):
    scale = tl.load(rstd + view * C + c, mask=real, other=0) * tl.load(weight + c, mask=real, other=0)
    return scale, tl.load(bias + c, mask=real, other=0) - tl.load(mean + view * C + c, mask=real, other=0) * scale


@triton.jit(do_not_specialize=["tiles"])
def gradient_sums_kernel(
    x, y, dy, dy2, g, partial, mean, rstd, weight, bias, M, C, tiles, RELU: tl.constexpr, RESIDUAL: tl.constexpr,
    FORK: tl.constexpr, UNROLL: tl.constexpr, TILE_M: tl.constexpr, TILE_C: tl.constexpr,
):  # fmt: skip
    """Sums over rows of g, the gradient before the ReLU, and of g (x − mean).

    y was used once, or (FORK) twice. g is written where it is worth a tensor: as the residual's gradient, as the sum of
    two. Without a residual the sign before the ReLU follows from x; with one it is read off y.
    """
    view = tl.program_id(2)
    c, real = _channels(C, TILE_C)
    centre = tl.load(mean + view * C + c, mask=real, other=0)
    scale, shift = _affine(mean, rstd, weight, bias, view, c, real, C)
    base = view.to(tl.int64) * M * C
    one = tl.zeros((TILE_M, TILE_C), tl.float32)
    two = tl.zeros((TILE_M, TILE_C), tl.float32)
    for place in range(tl.program_id(0), tl.cdiv(tiles, UNROLL), tl.num_programs(0)):
        for one_of in tl.static_range(UNROLL):
            at, inside = _pixels(tiles - 1 - (place * UNROLL + one_of), c, M, C, TILE_M)
            at += base
            pull = tl.load(dy + at, mask=inside, other=0).to(tl.float32)
            value = tl.load(x + at, mask=inside, other=0).to(tl.float32)
            if FORK:
                pull += tl.load(dy2 + at, mask=inside, other=0).to(tl.float32)
            if RESIDUAL:
                pull = tl.where(tl.load(y + at, mask=inside, other=0) > 0, pull, 0)
            elif RELU:
                pull = tl.where(value * scale[None, :] + shift[None, :] > 0, pull, 0)
            if RESIDUAL or FORK:
                tl.store(g + at, pull.to(g.dtype.element_ty), mask=inside)
            one += pull
            two += tl.where(inside, pull * (value - centre[None, :]), 0)
    store_sums(partial, tl.sum(one, 0), tl.sum(two, 0), view, c, real, C)


@triton.jit(do_not_specialize=["V", "programs"])
def gradient_statistics_kernel(partial, rstd, coefficients, dweight, dbias, V, M, C, programs, TILE_C: tl.constexpr):
    """Each view's mean of g and of g x̂ /σ (V × 2 × C); their sums over views are the gradients of β and γ."""
    c, real = _channels(C, TILE_C)
    pull = tl.zeros((TILE_C,), tl.float32)
    stretch = tl.zeros((TILE_C,), tl.float32)
    for view in range(V):
        one, two = _sums(partial, view, c, real, C, programs, TILE_C)
        inverse = tl.load(rstd + view * C + c, mask=real, other=0)
        pull += one
        stretch += two * inverse
        tl.store(coefficients + (2 * view) * C + c, one / M, mask=real)
        tl.store(coefficients + (2 * view + 1) * C + c, two * inverse * inverse / M, mask=real)
    tl.store(dbias + c, pull, mask=real)
    tl.store(dweight + c, stretch, mask=real)


@triton.jit
def gradient_kernel(
    x, g, dx, coefficients, mean, rstd, weight, bias, M, C,
    RELU: tl.constexpr, TILE_M: tl.constexpr, TILE_C: tl.constexpr,
):  # fmt: skip
    """dx = γ/σ (g − mean(g) − x̂ mean(g x̂)); with RELU, g is still to be masked by the sign that follows from x."""
    view = tl.program_id(2)
    c, real = _channels(C, TILE_C)
    at, inside = _pixels(tl.program_id(0), c, M, C, TILE_M)
    at += view.to(tl.int64) * M * C
    scale, shift = _affine(mean, rstd, weight, bias, view, c, real, C)
    centre = tl.load(mean + view * C + c, mask=real, other=0)
    pull = tl.load(g + at, mask=inside, other=0).to(tl.float32)
    value = tl.load(x + at, mask=inside, other=0).to(tl.float32)
    if RELU:
        pull = tl.where(value * scale[None, :] + shift[None, :] > 0, pull, 0)
    constant = tl.load(coefficients + (2 * view) * C + c, mask=real, other=0)
    slope = tl.load(coefficients + (2 * view + 1) * C + c, mask=real, other=0)
    out = scale[None, :] * (pull - constant[None, :] - (value - centre[None, :]) * slope[None, :])
    tl.store(dx + at, out.to(dx.dtype.element_ty), mask=inside)


class Norm(NamedTuple):
    """What a BatchNorm layer holds, and how it is used."""

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
    """What a pass of sums left: V × P × 2 × C partial sums of y − first and its square."""

    partial: Tensor
    first: Tensor


class _Grid(NamedTuple):
    """V, M, C, and how programs share them."""

    views: int
    rows: int
    channels: int

    def tiles(self, how: dict[str, Any]) -> int:
        return triton.cdiv(self.rows, how["TILE_M"])

    def whole(self, how: dict[str, Any]) -> tuple[int, int, int]:
        """A program for each tile."""
        return self.tiles(how), triton.cdiv(self.channels, TILE_C), self.views

    def shared(self, how: dict[str, Any]) -> tuple[int, int, int]:
        """A few programs for each channel and view, to which the tiles are dealt out."""
        columns = triton.cdiv(self.channels, TILE_C)
        most = max(1, PROGRAMS // (self.views * columns))
        return min(triton.cdiv(self.tiles(how), how["UNROLL"]), most), columns, self.views


def _grid_of(x: Tensor, views: int) -> _Grid:
    channels = x.shape[1]
    return _Grid(views, x.numel() // channels // views, channels)


def takes(x: Tensor) -> bool:
    """Channels-last memory of single or half precision, whose offsets fit into 32 bits."""
    memory = torch.channels_last if x.ndim == 4 else torch.contiguous_format
    small = x.dtype in (torch.float32, torch.bfloat16, torch.float16) and x.numel() < 2**31
    return x.ndim in (2, 4) and small and x.is_contiguous(memory_format=memory)


def _like(x: Tensor, dy: Tensor) -> Tensor:
    return dy.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else dy.contiguous()


def _same_memory(x: Tensor) -> Tensor:
    """Not a view of x: a view would keep x alive, which may keep the view."""
    return x.new_empty(0).set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())


class Statistics(NamedTuple):
    """V × C means and 1/σ."""

    mean: Tensor
    rstd: Tensor


class Shortcut(NamedTuple):
    """The norm of a residual that is still to be normalized."""

    norm: Norm
    statistics: Statistics


def normalize(
    x: Tensor, residual: Tensor | None, statistics: Statistics, norm: Norm, shortcut: Shortcut | None = None
) -> Tensor:
    """One pass, by statistics that are known already."""
    _, rows, channels = grid = _grid_of(x, norm.views)
    y = torch.empty_like(x)
    own = (*statistics, norm.weight, norm.bias)
    other = own if shortcut is None else (*shortcut.statistics, shortcut.norm.weight, shortcut.norm.bias)
    kind = 0 if residual is None else 1 if shortcut is None else 2
    with on_device_of(x):
        apply_kernel[grid.whole(APPLY)](
            x, y, x if residual is None else residual, *own, *other, rows, channels,
            RELU=norm.relu, RESIDUAL=kind, **APPLY,
        )  # fmt: skip
    return y


def _moments(x: Tensor, grid: _Grid) -> Sums:
    programs = grid.shared(MOMENTS)
    partial = torch.empty(grid.views, programs[0], 2, grid.channels, device=x.device)
    moments_kernel[programs](x, partial, grid.rows, grid.channels, grid.tiles(MOMENTS), **MOMENTS)
    return Sums(partial, x)


def _statistics(sums: Sums, grid: _Grid, norm: Norm) -> Statistics:
    """Updates the running statistics, too."""
    views, rows, channels = grid
    mean, rstd = torch.empty(2, views, channels, device=sums.partial.device)
    stride = 0 if sums.first.ndim == 1 else rows * channels
    statistics_kernel[1, triton.cdiv(channels, 8)](
        sums.first, sums.partial, mean, rstd, norm.running_mean, norm.running_var, norm.tracked,
        views, rows, channels, sums.partial.shape[1], stride, norm.eps, norm.momentum, TILE_C=8,
    )  # fmt: skip
    return Statistics(mean, rstd)


class Gradients(NamedTuple):
    x: Tensor
    weight: Tensor
    bias: Tensor
    before_relu: Tensor


def _gradients(x: Tensor, y: Tensor | None, pulls: list[Tensor], statistics: Statistics, norm: Norm) -> Gradients:
    """From one gradient of the output or from two to be added; y is given where a residual was added to it."""
    views, rows, channels = grid = _grid_of(x, norm.views)
    dy, residual, fork = pulls[0], y is not None, len(pulls) == 2
    g = torch.empty_like(dy) if residual or fork else dy
    programs, known = grid.shared(GRADIENT_SUMS), (*statistics, norm.weight, norm.bias)
    partial = torch.empty(views, programs[0], 2, channels, device=x.device)
    gradient_sums_kernel[programs](
        x, x if y is None else y, dy, pulls[-1], g, partial, *known, rows, channels, grid.tiles(GRADIENT_SUMS),
        RELU=norm.relu, RESIDUAL=residual, FORK=fork, **GRADIENT_SUMS,
    )  # fmt: skip
    coefficients = torch.empty(views, 2, channels, device=x.device)
    dweight, dbias = torch.empty_like(norm.weight), torch.empty_like(norm.bias)
    gradient_statistics_kernel[1, triton.cdiv(channels, 8)](
        partial, statistics.rstd, coefficients, dweight, dbias, views, rows, channels, programs[0], TILE_C=8
    )
    dx, masked = torch.empty_like(x), residual or fork
    gradient_kernel[grid.whole(GRADIENT)](
        x, g, dx, coefficients, *known, rows, channels, RELU=norm.relu and not masked, **GRADIENT
    )
    return Gradients(dx, dweight, dbias, g)


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
        grid = _grid_of(x, norm.views)
        statistics = _statistics(sums or _moments(x, grid), grid, norm)
        shortcut = None
        if other is not None and residual is not None:
            shortcut = Shortcut(other, _statistics(_moments(residual, grid), grid, other))
        y = normalize(x, residual, statistics, norm, shortcut)
        ctx.norms, ctx.added = (norm, other), residual is not None
        ctx.weights = len(weights)
        second = () if shortcut is None else (residual, *shortcut.statistics)
        ctx.save_for_backward(*weights, x, y if ctx.added else None, *statistics, *second)
        ctx.set_materialize_grads(False)
        return (y, _same_memory(y)) if norm.fork else y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        weights, (x, y, mean, rstd, *second) = ctx.saved_tensors[: ctx.weights], ctx.saved_tensors[ctx.weights :]
        norm, other = ctx.norms[0]._replace(weight=weights[0], bias=weights[1]), ctx.norms[1]
        if other is not None:
            other = other._replace(weight=weights[2], bias=weights[3])
        pulls = [_like(x, dy) for dy in upstream if dy is not None]
        if not pulls:
            return (None,) * (7 if other is None else 9)
        found = _gradients(x, y, pulls, Statistics(mean, rstd), norm)
        if other is None:
            return found.x, found.before_relu if ctx.added else None, None, None, None, found.weight, found.bias
        residual, *statistics = second
        beside = _gradients(residual, None, [found.before_relu], Statistics(*statistics), other)
        return found.x, beside.x, None, None, None, found.weight, found.bias, beside.weight, beside.bias


def batch_norm(
    x: Tensor, residual: Tensor | None, norm: Norm, *, other: Norm | None = None, sums: Sums | None = None
) -> Any:
    """In training: statistics of each view, running statistics updated, differentiable once. y; or, with `norm.fork`, y
    twice, for two uses whose gradients are then added on the way.

    `other` is the norm of the residual, where that is still to be normalized; `sums` are of x, where known already.
    """
    weights = (norm.weight, norm.bias) if other is None else (norm.weight, norm.bias, other.weight, other.bias)
    with on_device_of(x):
        return _NormAct.apply(x, residual, norm, other, sums, *weights)
