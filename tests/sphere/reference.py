"""The same quantities, written as literal loops over pairs in float64."""

import math

import torch
from torch import Tensor


def pair_sum(x: Tensor, potential, half_space: bool = False) -> Tensor:
    x = x / x.norm(dim=1, keepdim=True)
    points = [*x, *(-x)] if half_space else list(x)
    total = torch.zeros((), dtype=x.dtype)
    for i, a in enumerate(points):
        for j, b in enumerate(points):
            if i != j:
                total = total + potential(a, b)
    return total


def riesz(s: float):
    if s == 0:
        return lambda a, b: -(a - b).norm().log()
    return lambda a, b: (a - b).norm() ** -s


def geodesic(s: float):
    def angle(a, b):
        return torch.acos((a * b).sum().clamp(-1, 1))

    if s == 0:
        return lambda a, b: -angle(a, b).log()
    return lambda a, b: angle(a, b) ** -s


def gaussian(t: float):
    return lambda a, b: (-t * ((a - b) ** 2).sum()).exp()


def nt_xent(z1: Tensor, z2: Tensor, temperature: float) -> Tensor:
    z = torch.cat([z1, z2])
    z = z / z.norm(dim=1, keepdim=True)
    n, losses = len(z1), []
    for i in range(2 * n):
        positive = (z[i] * z[(i + n) % (2 * n)]).sum() / temperature
        others = [(z[i] * z[j]).sum() / temperature for j in range(2 * n) if j != i]
        losses.append(torch.logsumexp(torch.stack(others), 0) - positive)
    return torch.stack(losses).mean()


def simplex(n: int) -> Tensor:
    """n points, every pair at cosine −1/(n − 1)."""
    return torch.eye(n, dtype=torch.float64) - 1 / n


def circle(n: int) -> Tensor:
    angle = 2 * math.pi * torch.arange(n, dtype=torch.float64) / n
    return torch.stack([angle.cos(), angle.sin()], dim=1)
