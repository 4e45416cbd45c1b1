"""Counter-based random numbers: Philox-4x32-10 (Salmon et al., 2011).

A number is a function of a counter (sample, epoch, view, block) and a key (seed, stream). It does not depend on the
numbers drawn before it, so draws agree on any device and in any order. Words have 32 bits and are stored in int64.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

# streams: one for each purpose, so that purposes do not share numbers
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
    """Random words for each counter.

    Args:
        counter: Four int64 tensors of 32-bit words, which broadcast against each other.
        key: Two 32-bit words.

    Returns:
        Four int64 tensors of 32-bit words, of the broadcast shape.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3


def _multiply(word: Tensor, by: int) -> tuple[Tensor, Tensor]:
    """High and low word of a product: int64 wraps like uint64, and the mask removes the sign of the shift."""
    product = word * by
    return (product >> 32) & _WORD, product & _WORD


def uniforms(
    count: int, sample: Tensor, *, seed: int, epoch: int | Tensor = 0, view: int = 0, stream: int = VIEWS
) -> Tensor:
    """Uniform numbers in [0, 1) for each sample, multiples of 2⁻²⁴.

    Args:
        count: Numbers per sample.
        sample: Indices of the samples, shape (B,).
        seed: Seed of the run.
        epoch: Epoch, one for all samples or a tensor that broadcasts against the blocks.
        view: Index of the view.
        stream: Purpose of the numbers, such as `VIEWS`.

    Returns:
        A float32 tensor of shape (B, count).

    Example:
        >>> uniforms(2, torch.tensor([0, 7]), seed=1).shape
        torch.Size([2, 2])
    """
    blocks = torch.arange(-(-count // 4), device=sample.device)
    zero = torch.zeros_like(blocks)
    words = philox((sample.long()[:, None], zero + epoch, zero + view, blocks), (seed & _WORD, stream))
    return (torch.stack(words, dim=-1).flatten(1)[:, :count] >> 8).float() * 2.0**-24


def normals(count: int, sample: Tensor, *, seed: int, epoch: int | Tensor = 0, stream: int = VIEWS) -> Tensor:
    """Standard normal numbers for each sample, by the Box–Muller transform; arguments as for `uniforms`.

    Returns:
        A float32 tensor of shape (B, count).
    """
    u = uniforms(2 * -(-count // 2), sample, seed=seed, epoch=epoch, stream=stream)
    radius, angle = (-2 * torch.log1p(-u[:, 0::2])).sqrt(), 2 * math.pi * u[:, 1::2]
    return torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)[:, :count]


def permutation(
    n: int, *, seed: int, epoch: int = 0, stream: int = ORDER, device: torch.device | None = None
) -> Tensor:
    """A random permutation of 0 … n − 1, sorted by 62 random bits each.

    Args:
        n: Number of elements.
        seed: Seed of the run.
        epoch: Epoch.
        stream: Purpose of the permutation.
        device: Where the permutation is computed; it is the same on every device.

    Returns:
        An int64 tensor of shape (n,).

    Example:
        >>> sorted(permutation(4, seed=0).tolist())
        [0, 1, 2, 3]
    """
    sample = torch.arange(n, device=device)
    zero = torch.zeros_like(sample)
    high, low, *_ = philox((sample, zero + epoch, zero, zero), (seed & _WORD, stream))
    return torch.argsort((high >> 1) << 31 | (low >> 1), stable=True)
