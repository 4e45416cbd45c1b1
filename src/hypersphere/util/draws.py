"""Random numbers as a function: Philox-4x32-10 (Salmon et al. 2011) of a counter and a key.

The counter is (sample, epoch, view, block), the key (seed, stream), so every number is known without those before it,
on any device and in any order. Words are 32 bits, held in int64.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

# streams: what the numbers are for
VIEWS, PROBE, ORDER, SPLIT, FEW_SHOT, PROBE_ORDER, SAMPLE, FEW_LABELS, JIGSAW, PROJECTIONS, POWER, SKETCH = range(12)
CLUSTERS, WORDS, OPERATIONS, LEARNABILITY = range(12, 16)

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)  # added to the key after each round


class Key(NamedTuple):
    """What the random numbers of a batch depend on, besides sample and view."""

    seed: int
    epoch: int | Tensor
    stream: int = VIEWS


def philox(counter: tuple[Tensor, ...], key: tuple[int, int]) -> tuple[Tensor, ...]:
    """Four random words for each (broadcast) counter of four words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3


def _multiply(word: Tensor, by: int) -> tuple[Tensor, Tensor]:
    """High and low word of a product; int64 wraps as uint64 would, and the mask undoes the sign of the shift."""
    product = word * by
    return (product >> 32) & _WORD, product & _WORD


def uniforms(
    count: int, sample: Tensor, *, seed: int, epoch: int | Tensor = 0, view: int = 0, stream: int = VIEWS
) -> Tensor:
    """`count` numbers in [0, 1), multiples of 2⁻²⁴, for each sample: B × count, float32."""
    blocks = torch.arange(-(-count // 4), device=sample.device)
    zero = torch.zeros_like(blocks)
    words = philox((sample.long()[:, None], zero + epoch, zero + view, blocks), (seed & _WORD, stream))
    return (torch.stack(words, dim=-1).flatten(1)[:, :count] >> 8).float() * 2.0**-24


def normals(count: int, sample: Tensor, *, seed: int, epoch: int | Tensor = 0, stream: int = VIEWS) -> Tensor:
    """`count` standard normal numbers for each sample, B × count, float32: two of each two uniforms (Box–Muller)."""
    u = uniforms(2 * -(-count // 2), sample, seed=seed, epoch=epoch, stream=stream)
    radius, angle = (-2 * torch.log1p(-u[:, 0::2])).sqrt(), 2 * math.pi * u[:, 1::2]
    return torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)[:, :count]


def permutation(
    n: int, *, seed: int, epoch: int = 0, stream: int = ORDER, device: torch.device | None = None
) -> Tensor:
    """A random order of 0 … n − 1: sorted by 62 random bits each."""
    sample = torch.arange(n, device=device)
    zero = torch.zeros_like(sample)
    high, low, *_ = philox((sample, zero + epoch, zero, zero), (seed & _WORD, stream))
    return torch.argsort((high >> 1) << 31 | (low >> 1), stable=True)
