"""The losses of the methods, written as literal loops in float64 from the papers' equations."""

import torch
from torch import Tensor


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum() / (a * a).sum().sqrt() / (b * b).sum().sqrt()


def simsiam(p1: Tensor, p2: Tensor, z1: Tensor, z2: Tensor) -> Tensor:
    """D(p1, z2)/2 + D(p2, z1)/2, z fixed."""
    total = torch.zeros((), dtype=p1.dtype)
    for i in range(len(p1)):
        total = total - cosine(p1[i], z2[i].detach()) / 2 - cosine(p2[i], z1[i].detach()) / 2
    return total / len(p1)


def moco(query: Tensor, key: Tensor, queue: Tensor, temperature: float) -> Tensor:
    total = torch.zeros((), dtype=query.dtype)
    for q, k in zip(query, key.detach(), strict=True):
        own = (cosine(q, k) / temperature).exp()
        others = [(cosine(q, old) / temperature).exp() for old in queue.detach()]
        total = total - (own / (own + sum(others))).log()
    return total / len(query)


def barlow(z1: Tensor, z2: Tensor, weight: float) -> Tensor:
    dimensions = z1.shape[1]
    total = torch.zeros((), dtype=z1.dtype)
    for i in range(dimensions):
        for j in range(dimensions):
            a, b = z1[:, i] - z1[:, i].mean(), z2[:, j] - z2[:, j].mean()
            c = (a * b).sum() / ((a * a).sum().sqrt() * (b * b).sum().sqrt())
            total = total + ((1 - c) ** 2 if i == j else weight * c**2)
    return total / dimensions


def vicreg(z1: Tensor, z2: Tensor, invariance: float, variance: float, covariance: float) -> Tensor:
    """The squared difference per number; the mean of both hinges of √(Var + 1e-4); the sum of both covariance terms."""
    n, dimensions = z1.shape
    total = invariance * sum((a - b) ** 2 for a, b in zip(z1.flatten(), z2.flatten(), strict=True)) / (n * dimensions)
    for z in (z1, z2):
        centred = [z[:, i] - z[:, i].sum() / n for i in range(dimensions)]
        for i in range(dimensions):
            for j in range(dimensions):
                c = (centred[i] * centred[j]).sum() / (n - 1)
                if i == j:
                    total = total + variance / 2 * (1 - (c + 1e-4).sqrt()).clamp(min=0) / dimensions
                else:
                    total = total + covariance * c**2 / dimensions
    return total


def dcl(z1: Tensor, z2: Tensor, temperature: float) -> Tensor:
    views, n = torch.cat([z1, z2]), len(z1)
    total = torch.zeros((), dtype=z1.dtype)
    for i in range(2 * n):
        others = [(cosine(views[i], views[j]) / temperature).exp() for j in range(2 * n) if j % n != i % n]
        total = total - cosine(views[i], views[(i + n) % (2 * n)]) / temperature + sum(others).log()
    return total / (2 * n)


def cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    known = [(row, y) for row, y in zip(logits, label.tolist(), strict=True) if y >= 0]
    losses = [sum(row.exp()).log() - row[y] for row, y in known]
    return sum(losses) / len(losses) if losses else torch.zeros((), dtype=logits.dtype)


def target_after(target: Tensor, online: Tensor, decay: float) -> Tensor:
    return decay * target + (1 - decay) * online
