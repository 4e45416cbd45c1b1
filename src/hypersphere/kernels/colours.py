"""Common parts of the view kernels: arguments, random numbers, colour changes. x holds a tile of each channel."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from hypersphere.util.random_numbers import Key


class Numbers(NamedTuple):
    """An augmentation as a kernel takes it: probabilities, and ranges as their low end and span."""

    area: float  # of the box, as a share of the image
    area_span: float
    log_ratio: float  # of width to height
    log_ratio_span: float
    whole_height: float  # of the box if no random box fits
    whole_width: float
    flip: float
    jitter: float
    brightness: float
    contrast: float
    saturation: float
    hue: float
    grey: float
    blur: float
    sigma: float
    sigma_span: float
    solarize: float


class Style(NamedTuple):
    """The changes of a view: an augmentation, the size of the blur kernel (0 for no blur), and the normalization."""

    numbers: Numbers
    blur: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def arguments(self) -> tuple[Numbers, tuple[float, ...], tuple[float, ...]]:
        """For a kernel. All are floats, because Triton compiles some ints in."""
        return Numbers(*map(float, self.numbers)), tuple(map(float, self.mean)), tuple(map(float, self.std))


def key_arguments(key: Key, device: torch.device) -> tuple[Tensor, int]:
    """The epoch as a tensor and the two words of the Philox key in one int."""
    seed, epoch, stream = key
    if not isinstance(epoch, Tensor):
        epoch = torch.full((), epoch, dtype=torch.int64, device=device)
    return epoch, (seed & 0xFFFFFFFF) | stream << 32


@triton.jit
def uniforms(key, counter, block):
    """Numbers 4 · block to 4 · block + 3 of `draws.uniforms`."""
    a, b, c, d = tl.philox(key, counter[0], counter[1], counter[2], block)
    return _unit(a), _unit(b), _unit(c), _unit(d)


@triton.jit
def _unit(word):
    return (word >> 8).to(tl.float32) * (1 / 16777216)


@triton.jit
def jitter_factors(how, u_brightness, u_contrast, u_saturation, u_hue):
    return (
        1 + how.brightness * (2 * u_brightness - 1),
        1 + how.contrast * (2 * u_contrast - 1),
        1 + how.saturation * (2 * u_saturation - 1),
        how.hue * (2 * u_hue - 1),
    )


@triton.jit
def next_change(n, left, rank, orders):
    """The n-th change in the permutation of this rank (permutations are sorted), and the state for the next call.

    `left` has a hexadecimal digit for each remaining change, at first 0x3210. `orders` is the number of permutations of
    those after the next, at first 6.
    """
    shift = rank // orders * 4
    change = (left >> shift) & 15
    left = (left & ((1 << shift) - 1)) | (left >> (shift + 4) << shift)
    return change, left, rank % orders, orders // tl.maximum(3 - n, 1)


@triton.jit
def changed(x, change, factors, mean, CHANNELS):
    """Apply one of `ops.JITTERS`; `mean` is the mean luma."""
    if change == 0:
        x = _blend(x, 0.0, factors[0])
    elif change == 1:
        x = _blend(x, mean, factors[1])
    elif CHANNELS == 3:
        if change == 2:
            x = _blend(x, luma(x, CHANNELS), factors[2])
        else:
            x = _hue(x, factors[3])
    return x


@triton.jit
def _blend(x, with_, factor):
    red, green, blue = x
    rest = (1 - factor) * with_
    return clip(factor * red + rest), clip(factor * green + rest), clip(factor * blue + rest)


@triton.jit
def _hue(x, turn):
    """`ops.hue`."""
    red, green, blue = x
    value = tl.maximum(tl.maximum(red, green), blue)
    chroma = value - tl.minimum(tl.minimum(red, green), blue)
    safe = tl.where(chroma > 0, chroma, 1.0)
    others = tl.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe)
    sixth = tl.where(value == red, (green - blue) / safe, others) + 6 * turn
    return _turned(value, chroma, sixth + 5), _turned(value, chroma, sixth + 3), _turned(value, chroma, sixth + 1)


@triton.jit
def _turned(value, chroma, phase):
    phase -= 6 * tl.floor(phase / 6)
    return value - chroma * clip(tl.minimum(phase, 4 - phase))


@triton.jit
def clip(x):
    return tl.minimum(tl.maximum(x, 0.0), 1.0)


@triton.jit
def luma(x, CHANNELS):
    red, green, blue = x
    if CHANNELS == 1:
        return red
    else:
        return 0.2989 * red + 0.587 * green + 0.114 * blue


@triton.jit
def solarize(x):
    red, green, blue = x
    return _inverted(red), _inverted(green), _inverted(blue)


@triton.jit
def _inverted(x):
    return tl.where(x >= 0.5, 1 - x, x)


@triton.jit
def gauss(n, sigma, KERNEL):
    gap = (n - KERNEL // 2) / sigma
    return tl.exp(-0.5 * gap * gap)


@triton.jit
def mirrored(place, n, SIZE, KERNEL):
    return SIZE - 1 - tl.abs(SIZE - 1 - tl.abs(place + (n - KERNEL // 2)))
