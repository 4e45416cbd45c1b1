"""Kernels over pairs of points on the sphere; the reference is `hypersphere.sphere.pairwise`.

    pack         rows → unit rows, each number as high + low of 16 bits, which keeps 22 bits in float16
    slopes       tiles of cosines by high·high + high·low + low·high → sums of φ, and slopes φ′(c) in 16 bits
    pull         slopes @ points, the gradient with respect to unit rows
    near         pairs with a cosine too near ±1, by y ∓ x
    finish       the gradient through the normalization, in the layout of the weights
    log_sums     log-sum-exp of rows of cosines

A launch covers all layers: each program reads its job from a table of `pairwise_tiles`, in the order of the fields
there. Nothing is added atomically, so results are deterministic. Nothing waits for the host.

`slopes` marks a near pair by −0 in the slope matrix, which adds nothing to the pull, and sets a flag for its tile.
"""

import triton
import triton.language as tl

from hypersphere.kernels.potentials import SOFTMAX, potential

UNIT = tl.constexpr(256.0)  # points are packed with this length, so that low parts are not subnormal in float16
UNIT2 = tl.constexpr(65536.0)
NEAR = tl.constexpr(-0x8000)  # the bits of −0
BLOCK = tl.constexpr(128)  # as in pairwise_tiles; packed rows alternate BLOCK high parts and their low parts


@triton.jit
def write_addresses(table, addresses):
    """Write kernel arguments to memory. Unlike a copy from the host, a CUDA graph can capture this."""
    for i in tl.static_range(len(addresses)):
        tl.store(table + i, addresses[i])


@triton.jit
def _matrix(addresses, index):
    return tl.load(addresses + index).to(tl.pointer_type(tl.float32))


@triton.jit
def _largest(entries):
    """Largest absolute value; 1 if all are zero, infinity if one is NaN."""
    largest = tl.max(tl.where(entries == entries, tl.abs(entries), float("inf")), 0)
    return tl.where(largest == 0, 1, largest)


@triton.jit
def _lengths(row, d, CHUNK: tl.constexpr):
    """Largest entry of a long row and its norm relative to that, (1, 0) for zeros, as in `sphere.unit`."""
    k = tl.arange(0, CHUNK)
    largest = 0.0
    for start in range(0, d, CHUNK):
        w = tl.load(row + start + k, mask=start + k < d, other=0)
        largest = tl.maximum(largest, tl.max(tl.where(w == w, tl.abs(w), float("inf")), 0))
    largest = tl.where(largest == 0, 1, largest)
    square = tl.zeros((CHUNK,), tl.float32)
    for start in range(0, d, CHUNK):
        w = tl.div_rn(tl.load(row + start + k, mask=start + k < d, other=0), largest)
        square += w * w
    return largest, tl.sqrt_rn(tl.sum(square, 0))


@triton.jit
def _high(k):
    """Position of the high part of entry k in a packed row; the low part is BLOCK later."""
    return k + k // BLOCK * BLOCK


@triton.jit
def _split(points, k, width, x):
    """Write x as high + low."""
    high = x.to(points.dtype.element_ty)
    low = (x - high.to(tl.float32)).to(points.dtype.element_ty)
    tl.store(points + _high(k), high, mask=k < width)
    tl.store(points + _high(k) + BLOCK, low, mask=k < width)


@triton.jit
def pack(
    jobs, addresses, gains, points,
    NORMALIZE: tl.constexpr, SCALED: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Pack one row. With SCALED, rows of matrix 2 are multiplied by their gain."""
    job, r = jobs + (tl.program_id(0) // ROWS) * 9, tl.program_id(0) % ROWS
    index, i, d, width = tl.load(job), tl.load(job + 1) + r, tl.load(job + 3), tl.load(job + 4)
    row = _matrix(addresses, index) + i * d
    d = tl.where(i < tl.load(job + 2), d, 0)  # padding rows are zero
    factor = UNIT * 1.0
    if SCALED:
        if index == 2:
            factor *= tl.load(gains + i, mask=d > 0, other=0)
    points += tl.load(job + 5) + r * (2 * width)
    k = tl.arange(0, CHUNK)
    if WHOLE:
        x = tl.load(row + k, mask=k < d, other=0)
        if NORMALIZE:
            x = tl.div_rn(x, _largest(x))
            norm = tl.sqrt_rn(tl.sum(x * x, 0))
            x = tl.where(norm == 0, 0, tl.div_rn(x, norm))
        _split(points, k, width, x * factor)
    else:
        if NORMALIZE:
            largest, norm = _lengths(row, d, CHUNK)
        for start in range(0, width, CHUNK):
            x = tl.load(row + start + k, mask=start + k < d, other=0)
            if NORMALIZE:
                x = tl.where(norm == 0, 0, tl.div_rn(tl.div_rn(x, largest), norm))
            _split(points, start + k, width, x * factor)


@triton.jit
def _stride(width):
    """Distance of packed rows, in 64 bits so that products with it are too."""
    return 2 * width.to(tl.int64)


@triton.jit
def _cosines(points, x, y, width, DEPTH: tl.constexpr):
    """BLOCK × BLOCK cosines, by high·high + high·low + low·high."""
    r, k = tl.arange(0, BLOCK), tl.arange(0, DEPTH)
    x_at = points + x + r[:, None] * _stride(width) + k[None, :]
    y_at = points + y + r[None, :] * _stride(width) + k[:, None]
    products = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, width, DEPTH):
        at = _high(start)
        x_high, x_low = tl.load(x_at + at), tl.load(x_at + at + BLOCK)
        y_high, y_low = tl.load(y_at + at), tl.load(y_at + at + BLOCK)
        products = tl.dot(x_high, y_high, products)
        products = tl.dot(x_high, y_low, products)
        products = tl.dot(x_low, y_high, products)
    return products * (1 / UNIT2)


@triton.jit
def _are_pairs(rows, cols, shift, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Which entries of a tile are pairs of two different, existing points."""
    r, c = tl.arange(0, ROWS)[:, None], tl.arange(0, COLS)[None, :]
    return (r < rows) & (c < cols) & (r + shift != c)


@triton.jit
def _halves(x, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Left and right half. Potentials of a part of a tile at a time need fewer registers."""
    return tl.split(tl.permute(tl.reshape(x, (ROWS, 2, COLS // 2)), (0, 2, 1)))


@triton.jit
def _slope_part(
    cosine, col, rows, cols, shift, slopes, stride, totals, sharpness,
    KIND: tl.constexpr, S: tl.constexpr, FLOOR2: tl.constexpr, HALF_SPACE: tl.constexpr,
    NEAR2: tl.constexpr, SCALE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Columns from `col` of a tile: write slopes; return Σ φ of pairs that are not near and a flag, for each row."""
    r, c = tl.arange(0, ROWS), tl.arange(0, COLS)
    pair = _are_pairs(rows, cols - col, shift - col, ROWS, COLS)
    if KIND == SOFTMAX:
        slope = tl.exp(sharpness * cosine - tl.load(totals + r, mask=r < rows, other=0)[:, None])
        value = slope
    else:
        value, slope = potential(2 - 2 * cosine, 2 + 2 * cosine, KIND, S, FLOOR2, HALF_SPACE)
    near = pair & (tl.abs(cosine) > 1 - NEAR2 / 2)
    if KIND == SOFTMAX:  # large weights may cancel against the positive pair's pull, so they must be as exact
        near = near | (pair & (slope > 0.015625))
    bits = (slope * SCALE).to(slopes.dtype.element_ty).to(tl.int16, bitcast=True)
    bits = tl.where(pair & (bits != NEAR), bits, 0)
    bits = tl.where(near, NEAR, bits).to(tl.int16)
    tl.store(slopes + r[:, None] * stride + (c + col)[None, :], bits.to(slopes.dtype.element_ty, bitcast=True))
    return tl.sum(tl.where(pair & (near == 0), value, 0), 1), tl.max(near.to(tl.int32), 1)


@triton.jit
def slopes_kernel(
    jobs, points, slopes, flags, values, totals, sharpness,
    KIND: tl.constexpr, S: tl.constexpr, FLOOR2: tl.constexpr, HALF_SPACE: tl.constexpr,
    NEAR2: tl.constexpr, SCALE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """One tile of pairs."""
    job = jobs + tl.program_id(0) * 13
    x, y = tl.multiple_of(tl.load(job), BLOCK), tl.multiple_of(tl.load(job + 1), BLOCK)
    width = tl.multiple_of(tl.load(job + 2).to(tl.int32), BLOCK)
    cosine = _cosines(points, x, y, width, DEPTH)
    rows, cols, shift = tl.load(job + 3).to(tl.int32), tl.load(job + 4).to(tl.int32), tl.load(job + 5).to(tl.int32)
    slopes += tl.multiple_of(tl.load(job + 7), BLOCK)
    stride = tl.multiple_of(tl.load(job + 8).to(tl.int32), BLOCK)
    if KIND == SOFTMAX:
        totals += tl.load(job + 12)
    QUARTER: tl.constexpr = BLOCK // 4
    value, near = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.int32)
    whole = _halves(cosine, BLOCK, BLOCK)
    for a in tl.static_range(2):
        half = _halves(whole[a], BLOCK, BLOCK // 2)
        for b in tl.static_range(2):
            found, flagged = _slope_part(
                half[b], (2 * a + b) * QUARTER, rows, cols, shift, slopes, stride, totals, sharpness,
                KIND, S, FLOOR2, HALF_SPACE, NEAR2, SCALE, BLOCK, QUARTER,
            )  # fmt: skip
            value += found
            near = tl.maximum(near, flagged)
    flag = tl.max(near, 0)
    tl.store(flags + tl.load(job + 9), flag)
    tl.store(flags + tl.load(job + 10), flag)
    tl.store(values + tl.load(job + 11), tl.sum(value, 0) * tl.load(job + 6).to(tl.float32))


@triton.jit
def _add_pulls(total, slopes, row_step, col_step, points, width, begin, end, DEPTH: tl.constexpr):
    r, c, k = tl.arange(0, BLOCK), tl.arange(0, BLOCK), tl.arange(0, DEPTH)
    at = points + k[:, None] * _stride(width) + c[None, :]
    for start in range(begin, end, DEPTH):
        slope = tl.load(slopes + r[:, None] * row_step + (start + k)[None, :] * col_step)
        total = tl.dot(slope, tl.load(at + start * _stride(width)), total)
    return total


@triton.jit
def pull_kernel(jobs, points, slopes, pull, inverse_scale, ADD: tl.constexpr, DEPTH: tl.constexpr):
    """pull = slopes @ points, or added to it.

    High parts suffice where points are nearly orthogonal: they are as exact as slopes in 16 bits. In few dimensions
    many points are close, and the part of a pull along x, which the normalization removes, is far larger than the rest.
    """
    job = jobs + tl.program_id(0) * 9
    straight, mirrored = tl.multiple_of(tl.load(job), BLOCK), tl.multiple_of(tl.load(job + 1), BLOCK)
    stride = tl.multiple_of(tl.load(job + 2).to(tl.int32), BLOCK)
    points += tl.multiple_of(tl.load(job + 3), BLOCK)
    width = tl.multiple_of(tl.load(job + 4).to(tl.int32), BLOCK)
    begin, split, end = tl.load(job + 5).to(tl.int32), tl.load(job + 6).to(tl.int32), tl.load(job + 7).to(tl.int32)
    begin, end = tl.multiple_of(begin, 64), tl.multiple_of(end, 64)
    split = tl.multiple_of(tl.minimum(tl.maximum(split, begin), end), 64)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    total = _add_pulls(total, slopes + mirrored, 1, stride, points, width, begin, split, DEPTH)
    total = _add_pulls(total, slopes + straight, stride, 1, points, width, split, end, DEPTH)
    if width == BLOCK:
        total = _add_pulls(total, slopes + mirrored, 1, stride, points + BLOCK, width, begin, split, DEPTH)
        total = _add_pulls(total, slopes + straight, stride, 1, points + BLOCK, width, split, end, DEPTH)
    r = tl.arange(0, BLOCK)
    at = pull + tl.multiple_of(tl.load(job + 8), BLOCK) + r[:, None] * width.to(tl.int64) + r[None, :]
    total *= inverse_scale / UNIT
    if ADD:
        total += tl.load(at)
    tl.store(at, total)


@triton.jit
def _entries(point, k, width):
    at = point + _high(k)
    return tl.load(at, mask=k < width, other=0).to(tl.float32) + tl.load(at + BLOCK, mask=k < width, other=0)


@triton.jit
def _near_pair(
    own, other, width, pull, totals, gain, index, sharpness,
    KIND: tl.constexpr, S: tl.constexpr, FLOOR2: tl.constexpr, HALF_SPACE: tl.constexpr,
    PULL: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """φ of one pair, and slope · (y ∓ x) added to x's pull, without cancellation: exactly 0 for duplicates."""
    chord2, anti2 = tl.zeros((CHUNK,), tl.float32), tl.zeros((CHUNK,), tl.float32)
    for start in range(0, width, CHUNK):
        k = start + tl.arange(0, CHUNK)
        x, y = _entries(own, k, width), _entries(other, k, width)
        chord2 += (y - x) * (y - x)
        anti2 += (y + x) * (y + x)
    chord2, anti2 = tl.sum(chord2, 0) / UNIT2, tl.sum(anti2, 0) / UNIT2
    side = tl.where(chord2 < anti2, 1.0, -1.0)
    if KIND == SOFTMAX:
        cosine = side * (1 - tl.minimum(chord2, anti2) / 2)
        slope = tl.exp(sharpness * cosine - tl.load(totals + index)) * gain
        value = slope
    else:
        value, slope = potential(chord2, anti2, KIND, S, FLOOR2, HALF_SPACE)
    if PULL:
        for start in range(0, width, CHUNK):
            k = start + tl.arange(0, CHUNK)
            x, y = _entries(own, k, width), _entries(other, k, width)
            before = tl.load(pull + k, mask=k < width, other=0)
            tl.store(pull + k, before + (slope / UNIT) * (y - side * x), mask=k < width)
        tl.debug_barrier()
    return value


@triton.jit
def near_kernel(
    jobs, points, slopes, flags, pull, values, totals, gains, sharpness,
    KIND: tl.constexpr, S: tl.constexpr, FLOOR2: tl.constexpr, HALF_SPACE: tl.constexpr,
    PULL: tl.constexpr, ON_Y: tl.constexpr, ROWS: tl.constexpr, TILES: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One point with the points near it or near its opposite, one by one."""
    job = jobs + (tl.program_id(0) // ROWS) * 13
    r = tl.program_id(0) % ROWS
    if r < tl.load(job + 3):
        tiles, step = tl.load(job + 5).to(tl.int32), tl.load(job + 7)
        flags += tl.load(job + 6)
        t = tl.arange(0, TILES)
        value = 0.0
        if tl.max(tl.load(flags + t * step, mask=t < tiles, other=0), 0) > 0:
            width, row = tl.load(job + 2).to(tl.int32), tl.load(job + 4) + r
            own, other = points + tl.load(job) + r * (2 * width), points + tl.load(job + 1)
            slopes += tl.load(job + 8)
            stride, split = tl.load(job + 9), tl.load(job + 10)
            pull += tl.load(job + 11) + r * width
            c = tl.arange(0, BLOCK)
            for b in range(tiles):
                if tl.load(flags + b * step) > 0:
                    col = b * BLOCK + c
                    at = tl.where(col < split, col * stride + row, row * stride + col)
                    bits = tl.load(slopes + at).to(tl.int16, bitcast=True)
                    near = (bits == NEAR).to(tl.int32)
                    for _ in range(tl.sum(near, 0)):
                        found = tl.argmax(near, 0)
                        near = tl.where(c == found, 0, near)
                        partner = b * BLOCK + found
                        index, gain = row, 1.0
                        if ON_Y:
                            index, gain = partner, tl.load(gains + partner)
                        value += _near_pair(
                            own, other + partner * _stride(width), width, pull, totals, gain, index, sharpness,
                            KIND, S, FLOOR2, HALF_SPACE, PULL, CHUNK,
                        )  # fmt: skip
        tl.store(values + tl.load(job + 12) + r, value)


@triton.jit
def _through_norm(g, w, along, largest, norm, factor):
    """(g − (g·ŵ) ŵ) / ‖w‖ times a factor, with w relative to its largest entry; `along` is g·w."""
    g -= along / (norm * norm) * w
    return tl.where(norm == 0, 0, tl.div_rn(tl.div_rn(g, norm) * factor, largest))


@triton.jit
def finish_kernel(
    jobs, addresses, pull, upstream, factors, matrices, ROWS: tl.constexpr, CHUNK: tl.constexpr, WHOLE: tl.constexpr
):
    """One row of the gradient by w from that by ŵ, times the upstream gradient; 0 for a zero row."""
    job, r = jobs + (tl.program_id(0) // ROWS) * 9, tl.program_id(0) % ROWS
    index, i, d = tl.load(job), tl.load(job + 1) + r, tl.load(job + 3)
    if i < tl.load(job + 2):
        row, gradient = _matrix(addresses, index) + i * d, _matrix(addresses, matrices + index) + i * d
        pull += tl.load(job + 6) + r * tl.load(job + 4)
        parts, part = tl.load(job + 7), tl.load(job + 8)
        factor = tl.load(upstream + index) * tl.load(factors + index)
        k = tl.arange(0, CHUNK)
        if WHOLE:
            w = tl.load(row + k, mask=k < d, other=0)
            g = _sum_parts(pull + k, k < d, parts, part, CHUNK)
            largest = _largest(w)
            w = tl.div_rn(w, largest)
            norm = tl.sqrt_rn(tl.sum(w * w, 0))
            tl.store(gradient + k, _through_norm(g, w, tl.sum(g * w, 0), largest, norm, factor), mask=k < d)
        else:
            largest, norm = _lengths(row, d, CHUNK)
            along = tl.zeros((CHUNK,), tl.float32)
            for start in range(0, d, CHUNK):
                w = tl.div_rn(tl.load(row + start + k, mask=start + k < d, other=0), largest)
                along += w * _sum_parts(pull + start + k, start + k < d, parts, part, CHUNK)
            along = tl.sum(along, 0)
            for start in range(0, d, CHUNK):
                inside = start + k < d
                w = tl.div_rn(tl.load(row + start + k, mask=inside, other=0), largest)
                g = _sum_parts(pull + start + k, inside, parts, part, CHUNK)
                tl.store(gradient + start + k, _through_norm(g, w, along, largest, norm, factor), mask=inside)


@triton.jit
def _sum_parts(at, inside, parts, part, CHUNK: tl.constexpr):
    total = tl.zeros((CHUNK,), tl.float32)
    for p in range(parts):
        total += tl.load(at + p * part, mask=inside, other=0)
    return total


@triton.jit
def log_sums_kernel(jobs, points, sums, scale, DEPTH: tl.constexpr):
    """Log-sum-exp of the rows of a few tiles."""
    job = jobs + tl.program_id(0) * 7
    x, y = tl.multiple_of(tl.load(job), BLOCK), tl.multiple_of(tl.load(job + 1), BLOCK)
    width = tl.multiple_of(tl.load(job + 2).to(tl.int32), BLOCK)
    rows, cols, shift = tl.load(job + 3).to(tl.int32), tl.load(job + 4).to(tl.int32), tl.load(job + 5).to(tl.int32)
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for col in range(0, cols, BLOCK):
        logits = scale * _cosines(points, x, y + col * _stride(width), width, DEPTH)
        logits = tl.where(_are_pairs(rows, cols - col, shift - col, BLOCK, BLOCK), logits, float("-inf"))
        new = tl.maximum(largest, tl.max(logits, 1))
        shield = tl.where(new == float("-inf"), 0, new)  # the row may have no pair so far
        total = total * tl.exp(largest - shield) + tl.sum(tl.exp(logits - shield[:, None]), 1)
        largest = new
    r = tl.arange(0, BLOCK)
    shield = tl.where(largest == float("-inf"), 0, largest)
    tl.store(sums + tl.load(job + 6) + r, shield + tl.log(total), mask=r < rows)
