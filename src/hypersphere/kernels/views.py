"""Augmented views of small images in one pass: the fused form of `views.pipeline.draw` and `apply`.

One program makes one view of one image. It reads the image from the dataset, draws the numbers of `draws.uniforms` by
Philox, and keeps the view in registers, a tile for each channel, until it writes it. A single channel is treated as
three equal ones, of which the first is written.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from hypersphere.kernels.colours import (
    Style,
    changed,
    clip,
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

LARGEST_VIEW = 64  # pixels a side that fit into registers
LARGEST_SOURCE = 128  # pixels a side; each view reads 16 times that area


def fused_views(pixels: Tensor, sample: Tensor, style: Style, out: Tensor, key: Key, *, first: int) -> None:
    """Fill `out` with view `first` of pixels[sample], then with view `first` + 1, and so on.

    pixels: N × C × H × W bytes, C = 1 or 3. sample: B. out: V·B × C × S × S, channels last. A captured CUDA graph reads
    the sample again at each replay, and the epoch if it is a 0-dim int64 tensor.
    """
    _, channels, height, width = pixels.shape
    size = out.shape[2]
    tile = triton.next_power_of_2(size * size)
    epoch, word = key_arguments(key, pixels.device)
    with torch.cuda.device_of(pixels):
        views_kernel[len(sample), len(out) // len(sample)](
            pixels, sample.contiguous(), epoch, out, word, first, *style.arguments(),
            height, width, channels, size, tile, _taps(height, size), _taps(width, size), style.blur,
            num_warps=warps(tile), num_stages=1, enable_fp_fusion=True,
        )  # fmt: skip


def _taps(pixels: int, size: int) -> int:
    """The most source pixels that a cubic kernel covers: four steps of the coarser grid."""
    return -(-4 * max(pixels, size) // size)


def warps(tile: int) -> int:
    """For 8 pixels per thread: registers do not spill, and the draws repeated by every thread cost little."""
    return min(max(tile // 256, 1), 16)


@triton.jit(do_not_specialize=["key", "first"], do_not_specialize_on_alignment=["sample", "epoch", "out"])
def views_kernel(
    pixels, sample, epoch, out, key, first, how, mean, std,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr,
    ROW_TAPS: tl.constexpr, COLUMN_TAPS: tl.constexpr, KERNEL: tl.constexpr,
):  # fmt: skip
    place, view = tl.program_id(0), tl.program_id(1)
    index = tl.load(sample + place).to(tl.int64)
    counter = (index.to(tl.uint32), tl.load(epoch).to(tl.uint32), (first + view).to(tl.uint32))
    u_top, u_left, u_flip, u_jitter = uniforms(key, counter, 5)  # blocks 0 to 4 are for the box
    u_brightness, u_contrast, u_saturation, u_hue = uniforms(key, counter, 6)
    u_order, u_grey, u_blur, u_sigma = uniforms(key, counter, 7)
    u_solarize, _, _, _ = uniforms(key, counter, 8)

    cell = tl.minimum(tl.arange(0, TILE), SIZE * SIZE - 1)  # row by row; past the end, the last pixel
    row, column = cell // SIZE, cell % SIZE
    box = random_box(key, counter, u_top, u_left, how, how.whole_height, how.whole_width, HEIGHT, WIDTH)
    image = pixels + index * (CHANNELS * HEIGHT * WIDTH)
    seen = tl.where(u_flip < how.flip, SIZE - 1 - column, column)
    x = cropped(image, row, seen, box, HEIGHT, WIDTH, CHANNELS, SIZE, ROW_TAPS, COLUMN_TAPS)
    if u_jitter < how.jitter:
        factors = jitter_factors(how, u_brightness, u_contrast, u_saturation, u_hue)
        x = _jitter(x, factors, (u_order * 24).to(tl.int32), CHANNELS, SIZE, TILE)
    if u_grey < how.grey:
        y = luma(x, CHANNELS)
        x = (y, y, y)
    if KERNEL:
        if u_blur < how.blur:
            x = _blur(x, tl.maximum(how.sigma + how.sigma_span * u_sigma, 1e-3), row, column, SIZE, KERNEL)
    if u_solarize < how.solarize:
        x = solarize(x)
    out += (view * tl.num_programs(0) + place).to(tl.int64) * (SIZE * SIZE * CHANNELS)
    _write(out, x, mean, std, CHANNELS, SIZE, TILE)


@triton.jit
def random_box(key, counter, u_top, u_left, how, whole_height, whole_width, HEIGHT, WIDTH):
    """`views.pipeline.box_of`, from the last try to the first, so that the first box that fits remains."""
    height, width = 0.0, 0.0
    for n in range(5):
        first_area, first_ratio, second_area, second_ratio = uniforms(key, counter, 4 - n)
        height, width = _try(second_area, second_ratio, height, width, how, HEIGHT, WIDTH)
        height, width = _try(first_area, first_ratio, height, width, how, HEIGHT, WIDTH)
    found = height > 0
    height = tl.where(found, height, whole_height)
    width = tl.where(found, width, whole_width)
    top = tl.where(found, tl.floor(u_top * (HEIGHT - height + 1)), tl.floor((HEIGHT - height) / 2))
    left = tl.where(found, tl.floor(u_left * (WIDTH - width + 1)), tl.floor((WIDTH - width) / 2))
    return top, left, height, width


@triton.jit
def _try(u_area, u_ratio, height, width, how, HEIGHT, WIDTH):
    """A random box if it fits, otherwise the given one."""
    area = HEIGHT * WIDTH * (how.area + how.area_span * u_area)
    ratio = tl.exp(how.log_ratio + how.log_ratio_span * u_ratio)
    h = tl.floor(tl.sqrt_rn(tl.div_rn(area, ratio)) + 0.5)
    w = tl.floor(tl.sqrt_rn(area * ratio) + 0.5)
    fits = (w > 0) & (w <= WIDTH) & (h > 0) & (h <= HEIGHT)
    return tl.where(fits, h, height), tl.where(fits, w, width)


@triton.jit
def cropped(image, row, column, box, HEIGHT, WIDTH, CHANNELS, SIZE, ROW_TAPS, COLUMN_TAPS):
    """`ops.resized_crop`: sum over the pixels of the box under the cubic kernel of each output pixel."""
    top, left, height, width = box
    y_step, x_step = height / SIZE, width / SIZE
    y_centre, x_centre = top + (row + 0.5) * y_step, left + (column + 0.5) * x_step
    red = tl.zeros(row.shape, tl.float32)
    green, blue, total = red, red, red
    for n in range(ROW_TAPS):
        y, y_weight = _tap(n, y_centre, y_step, top, height)
        for m in range(COLUMN_TAPS):
            x, x_weight = _tap(m, x_centre, x_step, left, width)
            pixel, weight = image + (y * WIDTH + x), y_weight * x_weight
            total += weight
            red += weight * tl.load(pixel).to(tl.float32)
            if CHANNELS == 3:
                green += weight * tl.load(pixel + HEIGHT * WIDTH).to(tl.float32)
                blue += weight * tl.load(pixel + 2 * HEIGHT * WIDTH).to(tl.float32)
    scale = 1 / (255 * total)
    if CHANNELS == 1:
        green, blue = red, red
    return clip(red * scale), clip(green * scale), clip(blue * scale)


@triton.jit
def _tap(n, centre, step, start, length):
    """The n-th source pixel under the kernel around each centre, and its weight: 0 outside the box."""
    spread = tl.maximum(step, 1.0)  # a wider kernel when shrinking
    place = tl.floor(centre - 0.5 - 2 * spread) + (n + 1)
    weight = _cubic((place + 0.5 - centre) / spread)
    last = start + length - 1
    weight = tl.where((place >= start) & (place <= last), weight, 0.0)
    return tl.minimum(tl.maximum(place, start), last).to(tl.int32), weight


@triton.jit
def _cubic(x):
    """Keys' kernel with a = −1/2."""
    x = tl.abs(x)
    inner = (1.5 * x - 2.5) * x * x + 1
    outer = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return tl.where(x < 1, inner, tl.where(x < 2, outer, 0.0))


@triton.jit
def _jitter(x, factors, rank, CHANNELS, SIZE, TILE):
    """`ops.jitter` in the order of this rank among the sorted permutations of 0 to 3."""
    left, orders = 0x3210, 6
    for n in range(4):
        change, left, rank, orders = next_change(n, left, rank, orders)
        mean = 0.0
        if change == 1:
            mean = _mean(luma(x, CHANNELS), SIZE, TILE)
        x = changed(x, change, factors, mean, CHANNELS)
    return x


@triton.jit
def _mean(x, SIZE, TILE):
    return tl.sum(tl.where(tl.arange(0, TILE) < SIZE * SIZE, x, 0.0)) / (SIZE * SIZE)


@triton.jit
def _blur(x, sigma, row, column, SIZE, KERNEL):
    """`ops.blur`."""
    red, green, blue = x
    return (
        _blurred(red, sigma, row, column, SIZE, KERNEL),
        _blurred(green, sigma, row, column, SIZE, KERNEL),
        _blurred(blue, sigma, row, column, SIZE, KERNEL),
    )


@triton.jit
def _blurred(x, sigma, row, column, SIZE, KERNEL):
    """Blur along the columns, then along the rows, mirrored at the border."""
    tall, wide, total = tl.zeros(x.shape, tl.float32), tl.zeros(x.shape, tl.float32), 0.0
    for n in tl.static_range(KERNEL):
        tall += gauss(n, sigma, KERNEL) * tl.gather(x, mirrored(row, n, SIZE, KERNEL) * SIZE + column, 0)
        total += gauss(n, sigma, KERNEL)
    for n in tl.static_range(KERNEL):
        wide += gauss(n, sigma, KERNEL) * tl.gather(tall, row * SIZE + mirrored(column, n, SIZE, KERNEL), 0)
    return wide / (total * total)


@triton.jit
def _write(out, x, mean, std, CHANNELS, SIZE, TILE):
    """Write normalized values, channels last."""
    cell = tl.arange(0, TILE)
    for channel in tl.static_range(CHANNELS):
        value = (x[channel] - mean[channel]) / std[channel]
        tl.store(out + cell * CHANNELS + channel, value, mask=cell < SIZE * SIZE)
