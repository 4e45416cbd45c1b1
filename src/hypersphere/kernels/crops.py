"""The changes after the crop, for views of any size: the fused form of `views.crops.reference`.

A view takes two launches, or four with blur. Each program processes a tile of pixels. A pass before computes the mean
that contrast needs. Each launch draws the random numbers again.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hypersphere.kernels.colours import (
    Style,
    changed,
    gauss,
    jitter_factors,
    key_arguments,
    luma,
    mirrored,
    next_change,
    solarize,
    uniforms,
)
from hypersphere.util.random_numbers import Key

TILE = 1024  # pixels per program
MEANS: dict[str, Any] = {"TILE": 4096, "num_warps": 16}  # for the means, where a program reads a whole image


def finish_crops(cropped: Tensor, sample: Tensor, style: Style, out: Tensor, key: Key, *, view: int) -> None:
    """Fill `out`, B × 3 × S × S, channels last, from `cropped`, whose B rows begin with 3 · S · S bytes."""
    batch, _, size, _ = out.shape
    numbers, *normalization = style.arguments()
    drawn = (sample.contiguous(), *key_arguments(key, out.device), view, numbers)
    tiles = (batch, triton.cdiv(size * size, TILE))
    means = torch.empty(batch, device=out.device)
    with torch.cuda.device_of(out):
        means_kernel[(batch,)](cropped, cropped.stride(0), means, *drawn, size, **MEANS)
        if not style.blur:
            colour_kernel[tiles](cropped, cropped.stride(0), means, out, *drawn, *normalization, size, TILE, True)
            return
        plain, tall = torch.empty(2, *out.shape, device=out.device)
        colour_kernel[tiles](cropped, cropped.stride(0), means, plain, *drawn, *normalization, size, TILE, False)
        blur_kernel[tiles](plain, tall, *drawn, *normalization, size, TILE, style.blur, False)
        blur_kernel[tiles](tall, out, *drawn, *normalization, size, TILE, style.blur, True)


_UNSPECIALIZED: dict[str, Any] = {
    "do_not_specialize": ["key", "view"],
    "do_not_specialize_on_alignment": ["cropped", "stride", "sample"],
}


@triton.jit(**_UNSPECIALIZED)
def means_kernel(cropped, stride, means, sample, epoch, key, view, how, SIZE: tl.constexpr, TILE: tl.constexpr):
    """Mean luma of each image at the time of the contrast change."""
    place = tl.program_id(0)
    counter = _counter(sample, epoch, view, place)
    _, _, _, u_jitter = uniforms(key, counter, 5)
    if u_jitter < how.jitter:
        factors, rank = _drawn_jitter(key, counter, how)
        total = tl.zeros((TILE,), tl.float32)
        for start in range(0, SIZE * SIZE, TILE):
            cell = start + tl.arange(0, TILE)
            x = _pixels(cropped + place.to(tl.int64) * stride, cell, False, SIZE)
            total += tl.where(cell < SIZE * SIZE, luma(_before_contrast(x, factors, rank), 3), 0.0)
        tl.store(means + place, tl.sum(total) / (SIZE * SIZE))


@triton.jit(**_UNSPECIALIZED)
def colour_kernel(
    cropped, stride, means, out, sample, epoch, key, view, how, mean, std,
    SIZE: tl.constexpr, TILE: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """Flip, jitter and grey; without blur also what follows it."""
    place = tl.program_id(0)
    counter = _counter(sample, epoch, view, place)
    _, _, u_flip, u_jitter = uniforms(key, counter, 5)
    _, u_grey, _, _ = uniforms(key, counter, 7)
    cell = tl.program_id(1) * TILE + tl.arange(0, TILE)
    x = _pixels(cropped + place.to(tl.int64) * stride, cell, u_flip < how.flip, SIZE)
    if u_jitter < how.jitter:
        factors, rank = _drawn_jitter(key, counter, how)
        x = _jittered(x, factors, rank, tl.load(means + place))
    if u_grey < how.grey:
        y = luma(x, 3)
        x = (y, y, y)
    _write(out, x, place, cell, key, counter, how, mean, std, SIZE, LAST)


@triton.jit(**_UNSPECIALIZED)
def blur_kernel(
    images, out, sample, epoch, key, view, how, mean, std,
    SIZE: tl.constexpr, TILE: tl.constexpr, KERNEL: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """Blur along the columns; with LAST along the rows, and what follows."""
    place = tl.program_id(0)
    counter = _counter(sample, epoch, view, place)
    _, _, u_blur, u_sigma = uniforms(key, counter, 7)
    cell = tl.program_id(1) * TILE + tl.arange(0, TILE)
    seen = tl.minimum(cell, SIZE * SIZE - 1)
    row, column = seen // SIZE, seen % SIZE
    image = images + place.to(tl.int64) * (3 * SIZE * SIZE)
    if u_blur < how.blur:
        sigma = tl.maximum(how.sigma + how.sigma_span * u_sigma, 1e-3)
        red = tl.zeros((TILE,), tl.float32)
        green, blue, total = red, red, 0.0
        for n in range(KERNEL):
            weight = gauss(n, sigma, KERNEL)
            if LAST:
                near = row * SIZE + mirrored(column, n, SIZE, KERNEL)
            else:
                near = mirrored(row, n, SIZE, KERNEL) * SIZE + column
            total += weight
            x = _loaded(image, near, SIZE)
            red += weight * x[0]
            green += weight * x[1]
            blue += weight * x[2]
        x = (red / total, green / total, blue / total)
    else:
        x = _loaded(image, seen, SIZE)
    _write(out, x, place, cell, key, counter, how, mean, std, SIZE, LAST)


@triton.jit
def _counter(sample, epoch, view, place):
    index = tl.load(sample + place)
    return index.to(tl.uint32), tl.load(epoch).to(tl.uint32), view.to(tl.uint32)


@triton.jit
def _drawn_jitter(key, counter, how):
    """Factors of the jitter, and the rank of its order."""
    u_brightness, u_contrast, u_saturation, u_hue = uniforms(key, counter, 6)
    u_order, _, _, _ = uniforms(key, counter, 7)
    return jitter_factors(how, u_brightness, u_contrast, u_saturation, u_hue), (u_order * 24).to(tl.int32)


@triton.jit
def _pixels(image, cell, flip, SIZE):
    """Pixels of a crop, stored channel by channel; past the end, the last pixel."""
    seen = tl.minimum(cell, SIZE * SIZE - 1)
    column = seen % SIZE
    seen += tl.where(flip, SIZE - 1 - 2 * column, 0)
    red, green, blue = _loaded(image, seen, SIZE)
    return red.to(tl.float32) / 255, green.to(tl.float32) / 255, blue.to(tl.float32) / 255


@triton.jit
def _loaded(image, seen, SIZE):
    image += seen
    return tl.load(image), tl.load(image + SIZE * SIZE), tl.load(image + 2 * SIZE * SIZE)


@triton.jit
def _before_contrast(x, factors, rank):
    left, orders, coming = 0x3210, 6, True
    for n in range(4):
        change, left, rank, orders = next_change(n, left, rank, orders)
        coming = coming & (change != 1)
        if coming:
            x = changed(x, change, factors, 0.0, 3)
    return x


@triton.jit
def _jittered(x, factors, rank, mean):
    left, orders = 0x3210, 6
    for n in range(4):
        change, left, rank, orders = next_change(n, left, rank, orders)
        x = changed(x, change, factors, mean, 3)
    return x


@triton.jit
def _write(out, x, place, cell, key, counter, how, mean, std, SIZE, LAST):
    """Write channel by channel; with LAST solarized, normalized and channels last."""
    out += place.to(tl.int64) * (3 * SIZE * SIZE)
    if LAST:
        u_solarize, _, _, _ = uniforms(key, counter, 8)
        if u_solarize < how.solarize:
            x = solarize(x)
    for channel in tl.static_range(3):
        if LAST:
            value = (x[channel] - mean[channel]) / std[channel]
            tl.store(out + cell * 3 + channel, value, mask=cell < SIZE * SIZE)
        else:
            tl.store(out + channel * SIZE * SIZE + cell, x[channel], mask=cell < SIZE * SIZE)
