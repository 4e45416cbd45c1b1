"""The first 3 × 3 convolution, of few channels, with the sums for the BatchNorm after it.

With three channels, library kernels are slow because matrix units are idle. As a product with neighbourhoods, built in
registers, it takes as long as writing the output. The reference is `torch.nn.functional.conv2d`.

Shapes: x is V views × M pixels × C channels, channels last; a neighbourhood has 9C numbers, padded to K; F filters.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from hypersphere.kernels.norm import PROGRAMS, Sums
from hypersphere.kernels.norm_kernels import store_sums

TILE: dict[str, int] = {"ROWS": 128, "num_warps": 4}


@triton.jit
def _neighbourhoods(x, tile, M, H, W, C: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr):
    """ROWS × K numbers: column 3C·dy + C·dx + c is channel c of the neighbour (dy, dx); the rest is zero."""
    pixel = (tile * ROWS + tl.arange(0, ROWS))[:, None]
    k = tl.arange(0, K)[None, :]
    dy, dx = k // (3 * C) - 1, (k // C) % 3 - 1
    row, column = (pixel // W) % H + dy, pixel % W + dx
    inside = (row >= 0) & (row < H) & (column >= 0) & (column < W) & (pixel < M) & (k < 9 * C)
    return tl.load(x + (pixel + dy * W + dx) * C + k % C, mask=inside, other=0)


@triton.jit(do_not_specialize=["tiles"])
def stem_kernel(
    x, w, y, first, partial, M, H, W, tiles,
    C: tl.constexpr, K: tl.constexpr, F: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """y = neighbourhoods · wᵀ, and the sums of y − first and its square."""
    view = tl.program_id(2)
    o = tl.arange(0, F)
    k = tl.arange(0, K)
    weight = tl.load(w + o[None, :] * (9 * C) + k[:, None], mask=(k < 9 * C)[:, None], other=0).to(x.dtype.element_ty)
    shift = tl.load(first + o)
    x += view.to(tl.int64) * M * C
    y += view.to(tl.int64) * M * F
    total = tl.zeros((ROWS, F), tl.float32)
    square = tl.zeros((ROWS, F), tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        product = tl.dot(_neighbourhoods(x, tile, M, H, W, C, K, ROWS), weight, input_precision="ieee")
        out = product.to(y.dtype.element_ty)
        pixel = (tile * ROWS + tl.arange(0, ROWS))[:, None]
        tl.store(y + pixel * F + o[None, :], out, mask=pixel < M)
        gap = tl.where(pixel < M, out.to(tl.float32) - shift[None, :], 0)
        total += gap
        square += gap * gap
    store_sums(partial, tl.sum(total, 0), tl.sum(square, 0), view, o, o < F, F)


@triton.jit(do_not_specialize=["tiles"])
def weight_gradient_kernel(
    x, dy, partial, M, H, W, tiles, C: tl.constexpr, K: tl.constexpr, F: tl.constexpr, ROWS: tl.constexpr
):
    """A part of neighbourhoodsᵀ · dy, K × F, over all views."""
    o = tl.arange(0, F)
    total = tl.zeros((K, F), tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        pixel = (tile * ROWS + tl.arange(0, ROWS))[:, None]
        pull = tl.load(dy + pixel.to(tl.int64) * F + o[None, :], mask=pixel < M, other=0)
        rows = _neighbourhoods(x, tile, M, H, W, C, K, ROWS)
        total += tl.dot(tl.trans(rows), pull, input_precision="ieee")
    k = tl.arange(0, K)
    tl.store(partial + (tl.program_id(0) * K + k[:, None]) * F + o[None, :], total)


def _sizes(x: Tensor, outputs: int) -> dict[str, int]:
    channels = x.shape[1]
    return {"C": channels, "K": max(16, triton.next_power_of_2(9 * channels)), "F": outputs}


class _Stem(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, first: Tensor, views: int) -> tuple[Tensor, Tensor]:
        batch, _, height, width = x.shape
        outputs, pixels = len(weight), batch * height * width // views
        y = torch.empty(
            batch, outputs, height, width, dtype=x.dtype, device=x.device, memory_format=torch.channels_last
        )
        tiles = triton.cdiv(pixels, TILE["ROWS"])
        programs = min(tiles, PROGRAMS // views)
        partial = torch.empty(views, programs, 2, outputs, device=x.device)
        rows = weight.permute(0, 2, 3, 1).contiguous()
        stem_kernel[programs, 1, views](
            x, rows, y, first, partial, pixels, height, width, tiles, **_sizes(x, outputs), **TILE
        )
        ctx.save_for_backward(x)
        ctx.mark_non_differentiable(partial)
        return y, partial

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        batch, channels, height, width = x.shape
        outputs, pixels = dy.shape[1], batch * height * width
        tiles = triton.cdiv(pixels, TILE["ROWS"])
        programs, sizes = min(tiles, PROGRAMS // 2), _sizes(x, outputs)
        partial = torch.empty(programs, sizes["K"], outputs, device=x.device)
        dy = dy.contiguous(memory_format=torch.channels_last)
        weight_gradient_kernel[(programs,)](x, dy, partial, pixels, height, width, tiles, **sizes, **TILE)
        gradient = partial.sum(0)[: 9 * channels].T.reshape(outputs, 3, 3, channels)
        return None, gradient.permute(0, 3, 1, 2), None, None


def takes(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernel supports it: up to 4 channels in, 16 to 128 out, and no gradient for the images."""
    few = x.shape[1] <= 4 and weight.shape[1:] == (x.shape[1], 3, 3) and len(weight) in (16, 32, 64, 128)
    small = x.numel() // x.shape[1] * len(weight) < 2**31  # offsets fit into 32 bits
    return few and small and x.is_contiguous(memory_format=torch.channels_last) and not x.requires_grad


def convolve(x: Tensor, weight: Tensor, first: Tensor, views: int) -> tuple[Tensor, Sums]:
    """The convolution (stride 1, padding 1), and the sums over rows of y − first and its square."""
    with torch.cuda.device_of(x):
        y, partial = _Stem.apply(x, weight, first, views)
    return y, Sums(partial, first)
