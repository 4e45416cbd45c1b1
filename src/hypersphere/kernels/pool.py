"""BatchNorm, ReLU and the 3 × 3 max-pooling of stride 2 after it, in one pass each way: kernels, launches, gradient.

The reference is `max_pool2d` of `hypersphere.nn.norm`. It reads and writes the large image between ReLU and pooling
four times more, and its pooling is slow in channels-last memory.

Shapes: x is V (views) × M images of H × W pixels × C (channels, last in memory); y has h × w pixels, one for a window.
A tap from 0 to 8 is the place of a window's maximum, row by row; 9 stands for a maximum that the ReLU removes.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from hypersphere.kernels.norm import (
    Norm,
    Statistics,
    Sums,
    grid_of,
    like_input,
    moments_of,
    same_memory,
    statistics_of,
    sum_gradients,
)
from hypersphere.kernels.norm_kernels import affine, channels_of

POOL: dict[str, int] = {"TILE_M": 16, "TILE_C": 64, "num_warps": 4}  # tuned on an H200
GRADIENT: dict[str, int] = {"TILE_M": 16, "TILE_C": 64, "num_warps": 2}


@triton.jit
def pool_kernel(
    x, y, kept, taps, mean, rstd, weight, bias, M, H, W, h, w, C,
    KEEP: tl.constexpr, TILE_M: tl.constexpr, TILE_C: tl.constexpr,
):  # fmt: skip
    """y = max over a window of ReLU(γ (x − mean)/σ + β). With KEEP also x at the maximum, and its tap."""
    view = tl.program_id(2)
    c, real = channels_of(C, TILE_C)
    scale, shift = affine(mean, rstd, weight, bias, view, c, real, C)
    pixel = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    image, row, column = pixel // (h * w), pixel // w % h, pixel % w
    x += view.to(tl.int64) * M * H * W * C
    best = tl.full((TILE_M, TILE_C), float("-inf"), tl.float32)
    at_best = tl.zeros((TILE_M, TILE_C), x.dtype.element_ty)
    tap = tl.zeros((TILE_M, TILE_C), tl.int32)
    for n in tl.static_range(9):
        top, left = 2 * row - 1 + n // 3, 2 * column - 1 + n % 3
        inside = (image < M) & (top >= 0) & (top < H) & (left >= 0) & (left < W)
        inside = inside[:, None] & real[None, :]
        at = ((image * H + top) * W + left)[:, None] * C + c[None, :]
        value = tl.load(x + at, mask=inside, other=0)
        z = (value.to(tl.float32) * scale[None, :] + shift[None, :]).to(y.dtype.element_ty).to(tl.float32)
        better = inside & ((z > best) | (z != z))
        best = tl.where(better, z, best)
        at_best = tl.where(better, value, at_best)
        tap = tl.where(better, n, tap)
    at = view.to(tl.int64) * M * h * w * C + pixel[:, None] * C + c[None, :]
    inside = (image < M)[:, None] & real[None, :]
    out = tl.maximum(best, 0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y + at, out.to(y.dtype.element_ty), mask=inside)
    if KEEP:
        tl.store(kept + at, at_best, mask=inside)
        tl.store(taps + at, tl.where(best > 0, tap, 9).to(tl.int8), mask=inside)


@triton.jit
def unpool_gradient_kernel(
    x, g, taps, dx, coefficients, mean, rstd, weight, bias, M, H, W, h, w, C,
    TILE_M: tl.constexpr, TILE_C: tl.constexpr,
):  # fmt: skip
    """dx = γ/σ (g − mean(g) − x̂ mean(g x̂)), where the g of a pixel is that of the windows whose maximum it is."""
    view = tl.program_id(2)
    c, real = channels_of(C, TILE_C)
    scale, _ = affine(mean, rstd, weight, bias, view, c, real, C)
    centre = tl.load(mean + view * C + c, mask=real, other=0)
    constant = tl.load(coefficients + (2 * view) * C + c, mask=real, other=0)
    slope = tl.load(coefficients + (2 * view + 1) * C + c, mask=real, other=0)
    pixel = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    image, row, column = pixel // (H * W), pixel // W % H, pixel % W
    g += view.to(tl.int64) * M * h * w * C
    taps += view.to(tl.int64) * M * h * w * C
    pull = tl.zeros((TILE_M, TILE_C), tl.float32)
    for n in tl.static_range(4):  # a pixel of odd row is in two rows of windows, and of odd column in two columns
        r, s = (row + n // 2) // 2, (column + n % 2) // 2
        inside = (image < M) & (row % 2 >= n // 2) & (column % 2 >= n % 2) & (r < h) & (s < w)
        inside = inside[:, None] & real[None, :]
        own = (row - 2 * r + 1) * 3 + column - 2 * s + 1
        at = ((image * h + r) * w + s)[:, None] * C + c[None, :]
        chosen = tl.load(taps + at, mask=inside, other=9).to(tl.int32) == own[:, None]
        pull += tl.where(chosen, tl.load(g + at, mask=inside, other=0).to(tl.float32), 0)
    at = view.to(tl.int64) * M * H * W * C + pixel[:, None] * C + c[None, :]
    inside = (image < M)[:, None] & real[None, :]
    value = tl.load(x + at, mask=inside, other=0).to(tl.float32)
    out = scale[None, :] * (pull - constant[None, :] - (value - centre[None, :]) * slope[None, :])
    tl.store(dx + at, out.to(dx.dtype.element_ty), mask=inside)


def _launch(kernel: Any, tensors: list[Any], x: Tensor, y: Tensor, views: int, over: Tensor, **how: Any) -> None:
    """A program for each tile of the pixels of `over`, which is x or y."""
    batch, channels, height, width = x.shape
    pixels = batch // views * over.shape[2] * over.shape[3]
    grid = triton.cdiv(pixels, how["TILE_M"]), triton.cdiv(channels, how["TILE_C"]), views
    kernel[grid](*tensors, batch // views, height, width, *y.shape[2:], channels, **how)


def normalize_and_pool(x: Tensor, statistics: Statistics, norm: Norm) -> Tensor:
    """Normalize by given statistics, and pool."""
    return _pooled(x, statistics, norm, keep=False)[0]


def _pooled(x: Tensor, statistics: Statistics, norm: Norm, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    """(y, x at the maxima, taps); without `keep` only y is filled"""
    batch, channels, *sides = x.shape
    shape = (batch, channels, *((side + 1) // 2 for side in sides))
    y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    kept, taps = (torch.empty_like(y), torch.empty_like(y, dtype=torch.int8)) if keep else (y, y)
    given = [x, y, kept, taps, *statistics, norm.weight, norm.bias]
    with torch.cuda.device_of(x):
        _launch(pool_kernel, given, x, y, norm.views, y, KEEP=keep, **POOL)
    return y, kept, taps


class _NormPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, norm: Norm, sums: Sums | None, weight: Tensor, bias: Tensor) -> Any:
        grid = grid_of(x, norm.views)
        statistics = statistics_of(sums or moments_of(x, grid), grid, norm)
        y, kept, taps = _pooled(x, statistics, norm, keep=True)
        ctx.norm = norm
        ctx.save_for_backward(weight, bias, x, kept, taps, *statistics)
        ctx.set_materialize_grads(False)
        return (y, same_memory(y)) if norm.fork else y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        weight, bias, x, kept, taps, *found = ctx.saved_tensors
        norm, statistics = ctx.norm._replace(weight=weight, bias=bias), Statistics(*found)
        pulls = [like_input(kept, dy) for dy in upstream if dy is not None]
        if not pulls:
            return (None,) * 5
        pull = sum_gradients(kept, None, pulls, statistics, norm, grid_of(x, norm.views).rows)
        dx = torch.empty_like(x)
        given = [x, pull.g, taps, dx, pull.coefficients, *statistics, weight, bias]
        _launch(unpool_gradient_kernel, given, x, kept, norm.views, x, **GRADIENT)
        return dx, None, None, pull.weight, pull.bias


def batch_norm_and_pool(x: Tensor, norm: Norm, sums: Sums | None = None) -> Any:
    """BatchNorm in training, ReLU and max-pooling; arguments and result as for `norm.batch_norm`."""
    with torch.cuda.device_of(x):
        return _NormPool.apply(x, norm, sums, norm.weight, norm.bias)
