"""Kernels of BatchNorm with the residual and ReLU after it.

Shapes: x is V (views) × M (rows: images × pixels) × C (channels, last in memory). Sums read the rows from the end, and
the next pass from the beginning, so that it finds the last rows in the cache.
"""

import triton
import triton.language as tl

PARTS = tl.constexpr(128)  # partial sums added at once


@triton.jit
def _pixels(tile, c, M, C, TILE_M: tl.constexpr):
    """Offsets of a tile of one view, and which of them exist: none in a tile before the first."""
    row = tile * TILE_M + tl.arange(0, TILE_M)
    return row[:, None] * C + c[None, :], ((row >= 0) & (row < M))[:, None] & (c < C)[None, :]


@triton.jit
def channels_of(C, TILE_C: tl.constexpr):
    c = tl.program_id(1) * TILE_C + tl.arange(0, TILE_C)
    return c, c < C


@triton.jit(do_not_specialize=["tiles"])
def moments_kernel(x, partial, M, C, tiles, UNROLL: tl.constexpr, TILE_M: tl.constexpr, TILE_C: tl.constexpr):
    """Sums of x − x₀ and its square over every P-th tile; x₀ is the view's first row, to avoid cancellation."""
    view = tl.program_id(2)
    c, real = channels_of(C, TILE_C)
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
    """Store one program's sums in `partial`, V × P × 2 × C."""
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
    """Mean and 1/σ of each view and channel; running statistics are updated by one view after the other.

    `first` was subtracted before summing, with `stride` from one view to the next.
    """
    c, real = channels_of(C, TILE_C)
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
    """y = ReLU(γ (x − mean)/σ + β + residual). RESIDUAL: 0 for none, 1 as it is, 2 for one to normalize first."""
    view = tl.program_id(2)
    c, real = channels_of(C, TILE_C)
    at, inside = _pixels(tl.program_id(0), c, M, C, TILE_M)
    at += view.to(tl.int64) * M * C
    scale, shift = affine(mean, rstd, weight, bias, view, c, real, C)
    out = tl.load(x + at, mask=inside, other=0).to(tl.float32) * scale[None, :] + shift[None, :]
    if RESIDUAL:
        other = tl.load(residual + at, mask=inside, other=0).to(tl.float32)
        if RESIDUAL == 2:
            scale, shift = affine(r_mean, r_rstd, r_weight, r_bias, view, c, real, C)
            other = other * scale[None, :] + shift[None, :]
        out += other
    if RELU:
        out = tl.maximum(out, 0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y + at, out.to(y.dtype.element_ty), mask=inside)


@triton.jit
def affine(mean, rstd, weight, bias, view, c, real, C):
    scale = tl.load(rstd + view * C + c, mask=real, other=0) * tl.load(weight + c, mask=real, other=0)
    return scale, tl.load(bias + c, mask=real, other=0) - tl.load(mean + view * C + c, mask=real, other=0) * scale


@triton.jit(do_not_specialize=["tiles"])
def gradient_sums_kernel(
    x, y, dy, dy2, g, partial, mean, rstd, weight, bias, M, C, tiles, RELU: tl.constexpr, RESIDUAL: tl.constexpr,
    FORK: tl.constexpr, UNROLL: tl.constexpr, TILE_M: tl.constexpr, TILE_C: tl.constexpr,
):  # fmt: skip
    """Sums over rows of g, the gradient before the ReLU, and of g (x − mean).

    With FORK, y was used twice. g is written if it is the residual's gradient, or the sum of two gradients. The sign
    before the ReLU is computed from x or, with a residual, read from y.
    """
    view = tl.program_id(2)
    c, real = channels_of(C, TILE_C)
    centre = tl.load(mean + view * C + c, mask=real, other=0)
    scale, shift = affine(mean, rstd, weight, bias, view, c, real, C)
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
    """Means of g and g x̂ /σ for each view (V × 2 × C), and the gradients of β and γ, which sum over views."""
    c, real = channels_of(C, TILE_C)
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
    """dx = γ/σ (g − mean(g) − x̂ mean(g x̂)); with RELU, g is masked first, by the sign computed from x."""
    view = tl.program_id(2)
    c, real = channels_of(C, TILE_C)
    at, inside = _pixels(tl.program_id(0), c, M, C, TILE_M)
    at += view.to(tl.int64) * M * C
    scale, shift = affine(mean, rstd, weight, bias, view, c, real, C)
    centre = tl.load(mean + view * C + c, mask=real, other=0)
    pull = tl.load(g + at, mask=inside, other=0).to(tl.float32)
    value = tl.load(x + at, mask=inside, other=0).to(tl.float32)
    if RELU:
        pull = tl.where(value * scale[None, :] + shift[None, :] > 0, pull, 0)
    constant = tl.load(coefficients + (2 * view) * C + c, mask=real, other=0)
    slope = tl.load(coefficients + (2 * view + 1) * C + c, mask=real, other=0)
    out = scale[None, :] * (pull - constant[None, :] - (value - centre[None, :]) * slope[None, :])
    tl.store(dx + at, out.to(dx.dtype.element_ty), mask=inside)
