import copy
import itertools
import math

import pytest
import torch
from torch import nn

from hypersphere.optim import LARS, Muon, build_optimizer, scaled, warmup_cosine
from hypersphere.optim.muon import orthogonalized


def test_lars_is_its_equations():
    torch.manual_seed(0)
    w, b, z = (nn.Parameter(torch.randn(s)) for s in ((4, 3), (3,), (2, 2)))
    with torch.no_grad():
        z.zero_()
    groups = [{"params": [w, z]}, {"params": [b], "adapt": False, "weight_decay": 0.0}]
    optimizer = LARS(groups, lr=0.5, momentum=0.9, weight_decay=0.01, trust=0.02)
    ours = {p: (p.detach().double().clone(), torch.zeros_like(p).double()) for p in (w, b, z)}
    for _ in range(4):
        for p in (w, b, z):
            p.grad = torch.randn_like(p)
            value, momentum = ours[p]
            update = p.grad.double()
            if p is not b:
                update = update + 0.01 * value
                ratio = 0.02 * value.norm() / update.norm() if value.norm() > 0 else 1.0
                update = update * ratio
            momentum = 0.9 * momentum + update
            ours[p] = (value - 0.5 * momentum, momentum)
        optimizer.step()
    for p, (value, _) in ours.items():
        torch.testing.assert_close(p.detach().double(), value, rtol=1e-5, atol=1e-6)


def test_muon_is_torchs_for_matrices_and_adamw_for_vectors():
    torch.manual_seed(0)
    shapes = [(6, 4), (4, 6), (6, 4), (8, 3, 3, 3), (5,), (1,)]
    ours = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    theirs = [nn.Parameter(w.detach().flatten(1).clone() if w.ndim > 1 else w.detach().clone()) for w in ours]
    given = {"lr": 0.02, "weight_decay": 0.1}
    optimizer = Muon([{"params": ours, "adapt": True}], momentum=0.9, **given)
    vectors = torch.optim.AdamW([w for w in theirs if w.ndim == 1], **given)
    oracles = [vectors]
    if hasattr(torch.optim, "Muon"):  # of torch 2.9 and newer; it orthogonalizes in bfloat16
        matrices = [w for w in theirs if w.ndim == 2]
        oracles.append(torch.optim.Muon(matrices, momentum=0.9, adjust_lr_fn="match_rms_adamw", **given))
    for _ in range(4):
        for w, other in zip(ours, theirs, strict=True):
            w.grad = torch.randn_like(w)
            other.grad = w.grad.view_as(other).clone()
        optimizer.step()
        for oracle in oracles:
            oracle.step()
    for w, other in zip(ours, theirs, strict=True):
        exact = w.ndim == 1
        if exact or len(oracles) > 1:
            torch.testing.assert_close(w.view_as(other), other, rtol=0, atol=1e-6 if exact else 4e-3)


def test_steps_of_muon_are_nearly_orthogonal_and_as_large_as_adamws():
    torch.manual_seed(0)
    for shape in [(16, 64), (64, 16), (32, 32)]:
        values = torch.linalg.svdvals(orthogonalized(torch.randn(3, *shape, dtype=torch.double)))
        assert 0.6 < values.min() < values.max() < 1.3
        w = nn.Parameter(torch.zeros(shape))
        w.grad = torch.randn(shape)
        Muon([w], lr=0.1).step()
        assert w.detach().square().mean().sqrt().item() == pytest.approx(0.02, rel=0.25)
    assert torch.equal(orthogonalized(torch.zeros(1, 2, 3)), torch.zeros(1, 2, 3))


@pytest.mark.parametrize("shape", [(16, 48), (64, 576), (48, 16), (40, 60)])
@pytest.mark.parametrize("orders", [0, 8])
def test_orthogonalized_is_the_iteration_step_by_step(shape, orders):
    """Of matrices, wide ones in another order, whose singular values span orders of magnitude; in float64."""
    torch.manual_seed(0)
    u, _, v = torch.linalg.svd(torch.randn(2, *shape, dtype=torch.double), full_matrices=False)
    matrices = u * torch.logspace(0, -orders, min(shape), dtype=torch.double) @ v
    a, b, c = 3.4445, -4.7750, 2.0315
    wanted = matrices / matrices.flatten(1).norm(dim=1)[:, None, None]
    for _ in range(5):
        gram = wanted @ wanted.mT
        wanted = a * wanted + b * gram @ wanted + c * gram @ gram @ wanted
    found = orthogonalized(matrices.float()).double()
    assert (found - wanted).norm() < 1e-3 * wanted.norm()


def test_muon_counts_in_single_precision():
    narrow = [nn.Parameter(torch.zeros(n, dtype=torch.bfloat16)) for n in (2, 1)]
    wide = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
    for group, optimizer in ((narrow, Muon(narrow, lr=0.01)), (wide, torch.optim.AdamW(wide, lr=0.01, weight_decay=0))):
        for _ in range(300):
            group[0].grad, group[1].grad = torch.ones_like(group[0]), torch.zeros_like(group[1])
            optimizer.step()
    for a, b in zip(narrow, wide, strict=True):
        torch.testing.assert_close(a.float(), b, rtol=0.3, atol=0)  # bfloat16 rounds each step


def test_a_muon_that_is_resumed_makes_the_same_steps():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3))
    twin = copy.deepcopy(model)
    one, other = Muon(model.parameters(), lr=0.1, weight_decay=0.1), Muon(twin.parameters(), lr=0.1, weight_decay=0.1)
    for step in range(4):
        x = torch.randn(4, 1, 5, 5)
        for network, optimizer in ((model, one), (twin, other)):
            optimizer.zero_grad()
            network(x).pow(3).sum().backward()
            optimizer.step()
        if step == 1:
            saved = other.state_dict()
            other = Muon(twin.parameters(), lr=0.1, weight_decay=0.1)
            other.load_state_dict(saved)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


def test_without_adaptation_lars_is_sgd():
    a, b = (nn.Linear(5, 4) for _ in range(2))
    b.load_state_dict(a.state_dict())
    lars = LARS([{"params": a.parameters(), "adapt": False}], lr=0.1, momentum=0.9, weight_decay=0.01)
    sgd = torch.optim.SGD(b.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    for _ in range(5):
        x = torch.randn(6, 5)
        for model, optimizer in ((a, lars), (b, sgd)):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(a.weight, b.weight)


def test_lars_takes_its_learning_rate_as_a_tensor():
    one, two = (nn.Parameter(torch.ones(3, 3)) for _ in range(2))
    for p, lr in ((one, 0.1), (two, torch.tensor(0.1))):
        p.grad = torch.full((3, 3), 2.0)
        LARS([p], lr=lr).step()  # type: ignore[arg-type]
    torch.testing.assert_close(one, two)


@pytest.mark.parametrize("name", ["lars", "sgd", "adamw", "muon"])
def test_only_weights_are_decayed(name):
    weight, bias = nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(3))
    groups = [{"params": [weight]}, {"params": [bias], "weight_decay": 0.0, "adapt": False}]
    optimizer = build_optimizer(name, groups, weight_decay=0.1, momentum=0.0, trust=0.01)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    weight.grad, bias.grad = torch.zeros(3, 3), torch.zeros(3)
    optimizer.step()
    assert (weight < 1).all()
    assert (bias == 1).all()
    with pytest.raises(ValueError, match="lars, sgd, adamw, muon"):
        build_optimizer("adam", groups, weight_decay=0, momentum=0, trust=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["lars", "sgd", "adamw", "muon"])
def test_a_decay_that_moves_is_at_each_step_a_fixed_one(name):
    """0.1 to 0.5 along half a cosine; of weights alone."""
    torch.manual_seed(0)
    start, gradients = [torch.randn(3, 3), torch.randn(3)], torch.randn(4, 3, 3)
    shared = {"momentum": 0.9, "trust": 0.01}

    def built(**decay):
        held = [nn.Parameter(x.clone()) for x in start]
        groups = [{"params": [held[0]]}, {"params": [held[1]], "weight_decay": 0.0, "adapt": False}]
        return held, build_optimizer(name, groups, **decay, **shared)

    moving, one = built(weight_decay=0.1, weight_decay_end=0.5)
    fixed, other = built(weight_decay=1.0)
    for step, gradient in enumerate(gradients):
        progress = torch.tensor(step / 4)
        other.param_groups[0]["weight_decay"] = 0.5 - 0.4 * (1 + math.cos(math.pi * step / 4)) / 2
        for held, optimizer in ((moving, one), (fixed, other)):
            for group in optimizer.param_groups:
                group.update(lr=0.1, progress=progress)
            held[0].grad, held[1].grad = gradient.clone(), gradient[0].clone()
            optimizer.step()
        for a, b in zip(moving, fixed, strict=True):
            torch.testing.assert_close(a, b)
    assert "schedule" not in one.param_groups[1]


def test_schedule_at_its_corners():
    rates = [warmup_cosine(k, steps=110, warmup=10, peak=2.0) for k in range(110)]
    assert [warmup_cosine(k, steps=110, warmup=10, peak=2.0) for k in (110, 150, 210)] == [0, 0, 0]
    assert rates[0] == pytest.approx(0.2)
    assert rates[9] == pytest.approx(2.0)
    assert rates[10] == pytest.approx(2.0)
    assert rates[60] == pytest.approx(1.0)
    assert rates[109] == pytest.approx(1 + math.cos(math.pi * 99 / 100), abs=1e-9)
    assert all(a >= b for a, b in itertools.pairwise(rates[10:]))
    assert scaled(1.5, 1024) == 6.0


def test_a_closure_computes_the_gradients():
    """As torch's optimizers take it."""
    one, other = (nn.Parameter(torch.ones(3, 3)) for _ in range(2))
    ours, plain = (LARS([p], lr=0.1) for p in (one, other))

    def loss():
        ours.zero_grad()
        value = one.square().sum()
        value.backward()
        return value

    assert ours.step(loss) == 9
    other.square().sum().backward()
    assert plain.step() is None
    assert torch.equal(one, other)
    assert (one < 1).all()


@pytest.mark.parametrize("options", [{"lr": -1.0}, {"lr": 1.0, "momentum": -3.0}, {"lr": 1.0, "weight_decay": -1.0}])
def test_numbers_that_make_no_sense_are_told(options):
    with pytest.raises(ValueError, match="must be at least 0"):
        LARS([nn.Parameter(torch.ones(2))], **options)


def test_what_a_group_says_itself_counts():
    a, b, c = (nn.Parameter(torch.ones(2, 2)) for _ in range(3))
    groups = [{"params": [a], "betas": (0.5, 0.6)}, {"params": [b], "weight_decay": 0.3, "lr": 0.7}]
    groups.append({"params": [c], "fixed": True})
    built = build_optimizer("adamw", groups, weight_decay=0.1, momentum=0.9, trust=0.1, peak=2.0).param_groups
    assert [group["weight_decay"] for group in built] == [0.1, 0.3, 0.1]
    assert [group.get("rate") for group in built] == [None, 0.7, 2.0]
    assert built[0]["betas"] == (0.5, 0.6)
