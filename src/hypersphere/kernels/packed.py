"""Random crops of images of any size in GPU memory: the crop of `views.packed.reference`, resized.

A program makes a tile of one crop. It draws the box of the image again, as the other tiles of the crop do.
"""

from typing import Protocol

import torch
import triton
import triton.language as tl
from torch import Tensor

from hypersphere.kernels.colours import Style, key_arguments, uniforms
from hypersphere.kernels.views import cropped, random_box
from hypersphere.util.random_numbers import Key

TILE = 1024  # pixels per program


class Packed(Protocol):
    """`views.packed.PackedImages`: images of 3 × H × W bytes, where each begins (int64), and its sides (int32)."""

    @property
    def pixels(self) -> Tensor: ...
    @property
    def starts(self) -> Tensor: ...
    @property
    def heights(self) -> Tensor: ...
    @property
    def widths(self) -> Tensor: ...


def crop_packed(
    images: Packed, sample: Tensor, style: Style, ratio: tuple[float, float], out: Tensor, key: Key, *, view: int
) -> None:
    """Fill `out`, B × 3 · S · S numbers from 0 to 255, with a crop of each of B images, channel by channel.

    ratio: smallest and largest ratio of a crop's width to its height.
    """
    batch, size = len(sample), int((out.shape[1] // 3) ** 0.5 + 0.5)
    numbers, *_ = style.arguments()
    epoch, word = key_arguments(key, out.device)
    with torch.cuda.device_of(out):
        packed_crop_kernel[(batch, triton.cdiv(size * size, TILE))](
            images.pixels, images.starts, images.heights, images.widths, out, sample.contiguous(), epoch, word, view,
            numbers, *map(float, ratio), size, TILE,
        )  # fmt: skip


@triton.jit(do_not_specialize=["key", "view"], do_not_specialize_on_alignment=["sample", "epoch"])
def packed_crop_kernel(
    pixels, starts, heights, widths, out, sample, epoch, key, view, how, narrowest, widest,
    SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0)
    index = tl.load(sample + place)
    counter = (index.to(tl.uint32), tl.load(epoch).to(tl.uint32), view.to(tl.uint32))
    u_top, u_left, _, _ = uniforms(key, counter, 5)  # blocks 0 to 4 are for the box
    height, width = tl.load(heights + place), tl.load(widths + place)
    whole_height = tl.minimum(height.to(tl.float32), _rounded(tl.div_rn(width.to(tl.float32), narrowest)))
    whole_width = tl.minimum(width.to(tl.float32), _rounded(height * widest))
    box = random_box(key, counter, u_top, u_left, how, whole_height, whole_width, height, width)
    cell = tl.program_id(1) * TILE + tl.arange(0, TILE)
    seen = tl.minimum(cell, SIZE * SIZE - 1)
    image = pixels + tl.load(starts + place)
    row_taps, column_taps = _taps(box[2], SIZE), _taps(box[3], SIZE)
    x = cropped(image, seen // SIZE, seen % SIZE, box, height, width, 3, SIZE, row_taps, column_taps)
    out += place.to(tl.int64) * (3 * SIZE * SIZE)
    for channel in tl.static_range(3):
        tl.store(out + channel * SIZE * SIZE + cell, x[channel] * 255, mask=cell < SIZE * SIZE)


@triton.jit
def _rounded(x):
    """To the nearest integer, halves to the even one, as Python rounds."""
    up = tl.floor(x + 0.5)
    odd = up - 2 * tl.floor(up / 2) > 0
    return tl.where((up == x + 0.5) & odd, up - 1, up)


@triton.jit
def _taps(length, SIZE):
    """The most source pixels that a cubic kernel covers: four steps of the coarser grid."""
    return tl.cdiv(4 * tl.maximum(length.to(tl.int32), SIZE), SIZE)
