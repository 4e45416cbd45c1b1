"""Small networks and batches for methods with prototypes, clusters and words; what their losses share, in float64."""

import copy
import math

import torch
from torch import nn

from hypersphere.methods import Batch


def block(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel_size=3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


def encoder():
    """Of images of any size: two blocks, of 4 and 6 channels."""
    return nn.Sequential(block(3, 4), block(4, 6), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def made(kind, **options):
    return kind(encoder(), 6, hidden=16, projection=5, **options)


def batch(n=8, sizes=(6, 6, 4)):
    return Batch(tuple(torch.randn(n, 3, size, size) for size in sizes), torch.randperm(20)[:n], None)


def in_double(method, data):
    """A copy that computes in float64, and the projections of its views."""
    twin = copy.deepcopy(method).double()
    views = [view.double() for view in data.views]
    return twin, views, [twin.projector(twin.encoder(view)) for view in views]


def assert_same_loss(method, step, twin, wanted, *parts):
    """In value, and in the gradient of every weight of these parts."""
    torch.testing.assert_close(step.loss.double(), wanted, rtol=1e-5, atol=1e-5)
    step.loss.backward()
    wanted.backward()
    for part in parts:
        ours, theirs = (getattr(each, part).named_parameters() for each in (method, twin))
        for (name, weight), (_, reference) in zip(ours, theirs, strict=True):
            torch.testing.assert_close(weight.grad.double(), reference.grad, rtol=1e-3, atol=1e-4, msg=f"{part}.{name}")


def literal_cosines(z, c):
    return torch.stack([torch.stack([(a @ b) / (a.norm() * b.norm()) for b in c]) for a in z])


def literal_cross_entropy(target, scores, temperature):
    total = 0
    for q, s in zip(target, scores, strict=True):
        normalizer = sum(math.e ** (x / temperature) for x in s)
        total = total - sum(p * (x / temperature - normalizer.log()) for p, x in zip(q, s, strict=True))
    return total / len(target)


def literal_swapped(targets, scores, temperature):
    pairs = [(t, v) for t in range(len(targets)) for v in range(len(scores)) if t != v]
    return sum(literal_cross_entropy(targets[t], scores[v], temperature) for t, v in pairs) / len(pairs)
