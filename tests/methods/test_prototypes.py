"""SwAV and DINO, each against a literal reading of its equations in float64."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hypersphere.methods import DINO, OBoW, SwAV
from hypersphere.methods.prototypes import Prototypes
from hypersphere.sphere import sinkhorn
from tests.methods.small import (
    assert_same_loss,
    batch,
    in_double,
    literal_cosines,
    literal_swapped,
    made,
)


def literal_sinkhorn(scores, epsilon, iterations):
    """As the paper's listing: exp, then rows of prototypes to 1 / K, columns of images to 1 / N, in turn."""
    q = np.exp(np.asarray(scores, dtype=np.float64) / epsilon).T
    q /= q.sum()
    prototypes, images = q.shape
    for _ in range(iterations):
        for k in range(prototypes):
            q[k] /= q[k].sum() * prototypes
        for n in range(images):
            q[:, n] /= q[:, n].sum() * images
    return torch.from_numpy((q * images).T)


@pytest.mark.parametrize("iterations", [1, 3, 10])
def test_sinkhorn_is_the_literal_algorithm(iterations):
    scores = torch.randn(12, 5).clamp(-1, 1)
    wanted = literal_sinkhorn(scores, 0.1, iterations)
    torch.testing.assert_close(sinkhorn(scores, 0.1, iterations).double(), wanted, rtol=1e-4, atol=1e-6)


def test_codes_use_all_prototypes_equally():
    scores = torch.randn(40, 8, dtype=torch.float64)
    codes = sinkhorn(scores, 0.5, 200)
    torch.testing.assert_close(codes.sum(1), torch.ones(40, dtype=torch.float64))
    torch.testing.assert_close(codes.sum(0), torch.full((8,), 5.0, dtype=torch.float64))
    extreme = sinkhorn(torch.eye(6) * 2 - 1, 1e-3, 3)  # e²⁰⁰⁰ would overflow
    torch.testing.assert_close(extreme, torch.eye(6))
    assert not sinkhorn(torch.randn(4, 3, requires_grad=True)).requires_grad


def test_prototypes_are_directions_that_learn_after_the_first_epoch():
    prototypes, z = Prototypes(5, 4, epochs=10), torch.randn(7, 5, requires_grad=True)
    torch.testing.assert_close(prototypes.weight.norm(dim=1), torch.ones(4))
    for progress in (0.0, 0.09, 0.1, 1.0):
        prototypes.before_step(torch.tensor(progress))
        scores = prototypes(z)
        torch.testing.assert_close(scores, F.cosine_similarity(z[:, None], prototypes.weight[None], dim=2))
        (into_weight, into_z) = torch.autograd.grad(scores.square().sum(), [prototypes.weight, z])
        assert into_weight.any() == (progress >= 0.1)
        assert into_z.any()
    with torch.no_grad():
        prototypes.weight.mul_(3)
    prototypes.normalize()
    torch.testing.assert_close(prototypes.weight.norm(dim=1), torch.ones(4))


def test_swav_predicts_the_codes_of_the_other_views():
    method, data = made(SwAV, prototypes=4), batch()
    method.before_step(torch.tensor(1.0))
    twin, _, z = in_double(method, data)
    scores = [literal_cosines(each, twin.prototypes.weight) for each in z]
    codes = [literal_sinkhorn(scores[view].detach(), 0.05, 3) for view in (0, 1)]
    wanted = literal_swapped(codes, scores, 0.1)
    assert_same_loss(method, method(data), twin, wanted, "encoder", "projector", "prototypes")


def test_swavs_queue_takes_part_in_the_codes_and_keeps_the_newest():
    method, data = made(SwAV, prototypes=4, codes_queue=11), batch()
    before = method.queue.double()
    twin, _, z = in_double(method, data)
    scores = [literal_cosines(each, twin.prototypes.weight) for each in z]
    among = [
        torch.cat([s, literal_cosines(old, twin.prototypes.weight)]) for s, old in zip(scores, before, strict=False)
    ]
    codes = [literal_sinkhorn(each.detach(), 0.05, 3)[:8] for each in among]
    torch.testing.assert_close(method(data).loss.double(), literal_swapped(codes, scores, 0.1), rtol=1e-5, atol=1e-5)
    for view in (0, 1):
        torch.testing.assert_close(method.queue[view, :8].double(), F.normalize(z[view].detach()), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(method.queue[view, 8:].double(), before[view, :3])


def test_dino_predicts_what_the_teacher_gives_the_other_views():
    method, data = made(DINO, prototypes=4), batch()
    method.before_step(torch.tensor(1.0))
    with torch.no_grad():
        method.centre.copy_(torch.randn(4) / 10)
        for weight in method.target.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    twin, views, z = in_double(method, data)
    scores = [literal_cosines(each, twin.prototypes.weight) for each in z]
    of_teacher = [literal_cosines(twin.target[:2](view), twin.target[2].weight) for view in views[:2]]
    targets = [F.softmax((each - twin.centre) / 0.04, dim=1).detach() for each in of_teacher]
    centre = 0.9 * twin.centre + 0.1 * torch.cat(of_teacher).mean(0)
    step = method(data)
    assert_same_loss(method, step, twin, literal_swapped(targets, scores, 0.1), "encoder", "projector", "prototypes")
    assert all(weight.grad is None for weight in method.target.parameters())
    torch.testing.assert_close(method.centre.double(), centre, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [DINO, OBoW])
def test_the_teacher_follows(kind):
    for progress in (0.0, 0.3, 1.0):
        method = made(kind, prototypes=4, tau=0.9)
        followed = method.target if kind is OBoW else method.target[0]
        before = followed[0][0].weight.clone()
        with torch.no_grad():
            method.encoder[0][0].weight.add_(1)
        method.after_step(torch.tensor(progress))
        tau = 1 - (1 - 0.9) * (math.cos(math.pi * progress) + 1) / 2
        torch.testing.assert_close(followed[0][0].weight, before + (1 - tau))


def test_dinos_teacher_warms_up():
    """Linearly from 0.04 in 3 of 10 epochs; by default it stays at that."""
    method, constant = made(DINO, prototypes=4, epochs=10, teacher_temperature=0.07, teacher_warmup=3), made(DINO)
    for epochs, temperature in ((0, 0.04), (1.5, 0.055), (3, 0.07), (10, 0.07)):
        for each in (method, constant):
            each.before_step(torch.tensor(epochs / 10))
        assert method.teacher_temperature.item() == pytest.approx(temperature)
        assert constant.teacher_temperature.item() == pytest.approx(0.04)
    data = batch()
    twin, _, z = in_double(method, data)
    targets = [F.softmax(twin.target(view.double()) / 0.07, dim=1).detach() for view in data.views[:2]]
    wanted = literal_swapped(targets, [literal_cosines(each, twin.prototypes.weight) for each in z], 0.1)
    torch.testing.assert_close(method(data).loss.double(), wanted, rtol=1e-5, atol=1e-5)
    assert "teacher_temperature" not in method.state_dict()  # a function of progress: nothing to restore


def test_dinos_teacher_has_the_students_head():
    method = made(DINO, prototypes=4, tau=0.0)
    with torch.no_grad():
        method.prototypes.weight.copy_(torch.randn(4, 5))
        method.projector[0].weight.add_(1)
    method.after_step(torch.tensor(0.0))
    torch.testing.assert_close(method.target[2].weight, method.prototypes.weight)
    torch.testing.assert_close(method.target[1][0].weight, method.projector[0].weight)
