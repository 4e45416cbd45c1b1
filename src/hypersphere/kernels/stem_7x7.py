"""The 7 × 7 convolution of stride 2 with which ResNets begin, with the sums for the BatchNorm after it.

With three channels and stride 2, library kernels reach a twentieth of the rate of matrix units. Here blocks of 2 × 2
pixels become pixels of 16 channels, so that the convolution has 4 × 4 taps, stride 1, and neighbourhoods whose rows are
64 consecutive numbers. The reference is `torch.nn.functional.conv2d`.

Shapes: x is V views × M images × H × W × C channels; folded, h + 3 rows and w + 3 columns of 16 channels with h = H/2
and w = W/2; F filters of 4 rows × 64 numbers.
"""

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from hypersphere.kernels.norm import PROGRAMS, Sums
from hypersphere.kernels.norm_kernels import store_sums

DEEP = tl.constexpr(16)  # channels of a block: 4 pixels of up to 4 channels
ROW = tl.constexpr(64)  # numbers in a row of a neighbourhood: 4 blocks
CONVOLUTION: dict[str, int] = {"ROWS": 64, "num_warps": 4, "num_stages": 2}  # tuned on an H200
GRADIENT: dict[str, int] = {"ROWS": 64, "num_warps": 4, "num_stages": 3}
SHARED = 100_000  # bytes of shared memory; `tests.kernels.compiling` shows what programs take


@triton.jit
def fold_kernel(x, folded, total, H, W, C: tl.constexpr, ROWS: tl.constexpr):
    """Blocks of 2 × 2 pixels as pixels of 16 channels, with a border of zeros: 2 before, 1 after."""
    h, w = H // 2 + 3, W // 2 + 3
    block = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    k = tl.arange(0, DEEP)[None, :]
    image = (block // (h * w)).to(tl.int64)
    row, column = 2 * (block // w % h - 2) + k // (2 * C), 2 * (block % w - 2) + k // C % 2
    inside = (row >= 0) & (row < H) & (column >= 0) & (column < W) & (k < 4 * C) & (block < total)
    value = tl.load(x + ((image * H + row) * W + column) * C + k % C, mask=inside, other=0)
    tl.store(folded + block.to(tl.int64) * DEEP + k, value, mask=block < total)


@triton.jit
def _corner(pixel, h, w):
    """Where the neighbourhood of an output pixel begins in the folded images."""
    image = pixel // (h * w)
    return ((image * (h + 3) + pixel // w % h) * (w + 3) + pixel % w).to(tl.int64)[:, None] * DEEP


@triton.jit
def _patch(folded, corner, dy, w):
    """A row of the neighbourhoods: ROWS × 64."""
    return tl.load(folded + corner + dy * (w + 3) * DEEP + tl.arange(0, ROW)[None, :])


@triton.jit
def _filters(weight, dy, F: tl.constexpr):
    return tl.load(weight + (tl.arange(0, ROW) + dy * ROW)[:, None] * F + tl.arange(0, F)[None, :])


@triton.jit(do_not_specialize=["tiles"])
def convolution_kernel(folded, weight, y, first, partial, M, h, w, tiles, F: tl.constexpr, ROWS: tl.constexpr):
    """y = neighbourhoods · filters, and the sums of y − first and its square; M: output pixels of a view."""
    view = tl.program_id(2)
    o = tl.arange(0, F)
    shift = tl.load(first + o)
    w0, w1, w2, w3 = _filters(weight, 0, F), _filters(weight, 1, F), _filters(weight, 2, F), _filters(weight, 3, F)
    total = tl.zeros((ROWS, F), tl.float32)
    square = tl.zeros((ROWS, F), tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        pixel = tile * ROWS + tl.arange(0, ROWS)
        corner = _corner(view * M + tl.minimum(pixel, M - 1), h, w)
        product = tl.dot(_patch(folded, corner, 0, w), w0, input_precision="ieee")
        product = tl.dot(_patch(folded, corner, 1, w), w1, product, input_precision="ieee")
        product = tl.dot(_patch(folded, corner, 2, w), w2, product, input_precision="ieee")
        product = tl.dot(_patch(folded, corner, 3, w), w3, product, input_precision="ieee")
        out = product.to(y.dtype.element_ty)
        inside = (pixel < M)[:, None]
        tl.store(y + (view.to(tl.int64) * M + pixel)[:, None] * F + o[None, :], out, mask=inside)
        gap = tl.where(inside, out.to(tl.float32) - shift[None, :], 0)
        total += gap
        square += gap * gap
    store_sums(partial, tl.sum(total, 0), tl.sum(square, 0), view, o, o < F, F)


@triton.jit(do_not_specialize=["tiles"])
def filter_gradient_kernel(folded, dy, partial, M, h, w, tiles, F: tl.constexpr, ROWS: tl.constexpr):
    """A part of neighbourhoodsᵀ · dy, 4 · 64 × F; M: output pixels of all views."""
    o = tl.arange(0, F)
    d0 = tl.zeros((ROW, F), tl.float32)
    d1, d2, d3 = d0, d0, d0
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        pixel = tile * ROWS + tl.arange(0, ROWS)
        corner = _corner(tl.minimum(pixel, M - 1), h, w)
        pull = tl.load(dy + pixel.to(tl.int64)[:, None] * F + o[None, :], mask=(pixel < M)[:, None], other=0)
        d0 = tl.dot(tl.trans(_patch(folded, corner, 0, w)), pull, d0, input_precision="ieee")
        d1 = tl.dot(tl.trans(_patch(folded, corner, 1, w)), pull, d1, input_precision="ieee")
        d2 = tl.dot(tl.trans(_patch(folded, corner, 2, w)), pull, d2, input_precision="ieee")
        d3 = tl.dot(tl.trans(_patch(folded, corner, 3, w)), pull, d3, input_precision="ieee")
    partial += tl.program_id(0) * (4 * ROW * F) + tl.arange(0, ROW)[:, None] * F + o[None, :]
    tl.store(partial, d0)
    tl.store(partial + ROW * F, d1)
    tl.store(partial + 2 * ROW * F, d2)
    tl.store(partial + 3 * ROW * F, d3)


def fold(x: Tensor) -> Tensor:
    """Folded images, N × (H/2 + 3) × (W/2 + 3) × 16, of images that are channels last."""
    batch, channels, height, width = x.shape
    folded = torch.empty(batch, height // 2 + 3, width // 2 + 3, DEEP.value, dtype=x.dtype, device=x.device)
    total = folded.numel() // DEEP.value
    fold_kernel[(triton.cdiv(total, 128),)](x, folded, total, height, width, channels, 128, num_warps=4)
    return folded


def fold_filters(weight: Tensor) -> Tensor:
    """Filters of the folded images, 4 · 64 × F: those of 7 × 7 taps with a row and a column of zeros before."""
    filters, channels = weight.shape[:2]
    taps = F.pad(weight, (1, 0, 1, 0)).view(filters, channels, 4, 2, 4, 2).permute(2, 4, 3, 5, 1, 0)
    return F.pad(taps.reshape(4, 4, 4 * channels, filters), (0, 0, 0, DEEP.value - 4 * channels)).flatten(0, 2)


def unfold_filters(folded: Tensor, channels: int) -> Tensor:
    """The inverse of `fold_filters`."""
    taps = folded.view(4, 4, DEEP.value, -1)[:, :, : 4 * channels].unflatten(2, (2, 2, channels))
    return taps.permute(5, 4, 0, 2, 1, 3).flatten(4, 5).flatten(2, 3)[:, :, 1:, 1:]


class _Stem(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, first: Tensor, views: int) -> tuple[Tensor, Tensor]:
        batch, channels, height, width = x.shape
        filters, h, w = len(weight), height // 2, width // 2
        y = torch.empty(batch, filters, h, w, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        pixels = batch // views * h * w
        tiles = triton.cdiv(pixels, CONVOLUTION["ROWS"])
        programs = min(tiles, PROGRAMS // views)
        partial = torch.empty(views, programs, 2, filters, device=x.device)
        folded, rows = fold(x), fold_filters(weight.to(x.dtype)).contiguous()
        convolution_kernel[programs, 1, views](
            folded, rows, y, first, partial, pixels, h, w, tiles, filters, **CONVOLUTION
        )
        ctx.save_for_backward(folded)
        ctx.channels = channels
        ctx.mark_non_differentiable(partial)
        return y, partial

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        (folded,) = ctx.saved_tensors
        batch, filters, h, w = dy.shape
        pixels, dy = batch * h * w, dy.contiguous(memory_format=torch.channels_last)
        tiles = triton.cdiv(pixels, GRADIENT["ROWS"])
        programs = min(tiles, PROGRAMS // 4)
        partial = torch.empty(programs, 4 * ROW.value, filters, device=dy.device)
        filter_gradient_kernel[(programs,)](folded, dy, partial, pixels, h, w, tiles, filters, **GRADIENT)
        return None, unfold_filters(partial.sum(0), ctx.channels), None, None


def takes(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernels support it: up to 4 channels, even sides, 16 to 128 filters, no gradient for the images."""
    few = x.shape[1] <= 4 and weight.shape[1:] == (x.shape[1], 7, 7) and len(weight) in (16, 32, 64, 128)
    even = x.shape[2] % 2 == x.shape[3] % 2 == 0
    last = x.is_contiguous(memory_format=torch.channels_last)
    return few and even and last and not x.requires_grad and (not x.is_cuda or _fits(x))


def _fits(x: Tensor) -> bool:
    """Whether programs fit into the GPU's shared memory: in half precision, on all but old GPUs."""
    return x.element_size() == 2 and _shared_memory(x.device.index) >= SHARED


@cache
def _shared_memory(index: int) -> int:
    return torch.cuda.get_device_properties(index).shared_memory_per_block_optin


def convolve(x: Tensor, weight: Tensor, first: Tensor, views: int) -> tuple[Tensor, Sums]:
    """The convolution (stride 2, padding 3), and the sums over rows of y − first and its square."""
    with torch.cuda.device_of(x):
        y, partial = _Stem.apply(x, weight, first, views)
    return y, Sums(partial, first)
