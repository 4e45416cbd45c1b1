import copy
import inspect
import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hypersphere.errors import UserError
from hypersphere.methods import BYOL, METHODS, Batch, ProjectionLoss, SimCLR, method_class, name_of
from hypersphere.optim import LARS
from hypersphere.sphere import uniformity
from tests.sphere import reference


def encoder():
    flat = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())  # of patches too
    return nn.Sequential(flat, nn.Linear(12, 6), nn.BatchNorm1d(6))


def batch(n=8, offset=0.0):
    return Batch((torch.randn(n, 3, 2, 2), torch.randn(n, 3, 2, 2) + offset), torch.arange(n), torch.arange(n) % 2)


def small(name):
    options = {"hidden": 16, "projection": 5, "queue": 32, "jigsaw": 2}
    taken = inspect.signature(METHODS[name].__init__).parameters
    method = METHODS[name](encoder(), 6, **{option: value for option, value in options.items() if option in taken})
    method.start_trial(20)
    return method


def byol(**options):
    return BYOL(encoder(), 6, hidden=16, projection=5, **options)


def test_byol_is_the_symmetric_loss_of_predictions_against_the_target():
    method, data = byol(), batch()
    with torch.no_grad():
        for p in method.target.parameters():
            p.add_(0.1)
    once = copy.deepcopy(method)

    def cosine(a, b):
        return (F.normalize(a) * F.normalize(b)).sum(1)

    z1, z2 = (once.projector(once.encoder(v)) for v in data.views)
    t1, t2 = (once.target(v) for v in data.views)
    wanted = (2 - 2 * cosine(once.predictor(z1), t2)).mean() + (2 - 2 * cosine(once.predictor(z2), t1)).mean()
    step = method(data)
    torch.testing.assert_close(step.loss, wanted)
    step.loss.backward()
    assert all(p.grad is None for p in method.target.parameters())
    assert all(
        p.grad is not None for part in (method.encoder, method.projector, method.predictor) for p in part.parameters()
    )


def test_uniformity_is_added_for_the_online_projections_of_both_views():
    method, data = byol(), batch()
    method.projection_losses = (ProjectionLoss("uniformity", 0.25, partial(uniformity, t=3.0)),)
    twin = copy.deepcopy(method)
    spread = []
    for view in data.views:
        z = twin.projector(twin.encoder(view)).double()
        spread.append((reference.pair_sum(z, reference.gaussian(3.0)) / 56).log())
    step = method(data)
    assert step.terms["uniformity"].item() == pytest.approx(sum(spread).item() / 2, rel=1e-4)
    assert step.loss.item() == pytest.approx(
        step.terms["byol"].item() + 0.25 * step.terms["uniformity"].item(), rel=1e-5
    )


@pytest.mark.parametrize("name", [name for name, kind in METHODS.items() if not kind.takes_small_crops])
def test_more_views_than_a_method_takes_are_refused(name):
    two = batch()
    with pytest.raises(UserError, match=f"{METHODS[name].__name__} expects two views of each image, got 3"):
        small(name)(two._replace(views=(*two.views, two.views[0])))


@pytest.mark.parametrize("name", METHODS)
def test_one_view_is_refused_unless_something_else_teaches(name):
    one = batch()._replace(views=batch().views[:1], label=torch.arange(len(batch().sample)) % 2)
    if METHODS[name].takes_one_view:
        assert name in ("supervised", "distill")
        assert small(name)(one).loss.isfinite()
        return
    with pytest.raises(UserError, match=f"{METHODS[name].__name__} expects two views of each image, got 1"):
        small(name)(one)


def test_views_come_in_a_batch():
    with pytest.raises(UserError, match=r"BYOL expects a hs.methods.Batch of views, got tuple"):
        byol()(tuple(batch()))


def test_batch_statistics_are_per_view():
    """Joint statistics of two shifted views would differ from those of each."""
    method, data = byol(), batch(64, offset=10.0)
    seen = []
    method.encoder[2].register_forward_hook(lambda m, i, o: seen.append(o.detach().mean(0)))
    method(data)
    assert len(seen) == 2
    for mean in seen:
        torch.testing.assert_close(mean, torch.zeros(6), atol=1e-5, rtol=0)


def test_the_target_decay_follows_the_papers_schedule():
    for progress in (0.0, 0.3, 1.0):
        method = byol(tau=0.9)
        before = method.target[1][0].weight.clone()
        with torch.no_grad():
            method.projector[0].weight.add_(1)
        method.after_step(torch.tensor(progress))
        tau = 1 - (1 - 0.9) * (math.cos(math.pi * progress) + 1) / 2
        torch.testing.assert_close(method.target[1][0].weight, before + (1 - tau))


def test_simclr_is_nt_xent_of_the_projections():
    method, data = SimCLR(encoder(), 6, hidden=16, projection=5, temperature=0.2), batch()
    twin = copy.deepcopy(method)
    z1, z2 = (twin.projector(twin.encoder(v)) for v in data.views)
    torch.testing.assert_close(method(data).loss, reference.nt_xent(z1, z2, 0.2))


@pytest.mark.parametrize("name", METHODS)
def test_norms_and_biases_are_a_group_of_their_own_and_targets_are_in_none(name):
    method = small(name)
    weights, others = method.parameter_groups()
    assert "weight_decay" not in weights
    assert (others["weight_decay"], others["adapt"]) == (0, False)
    assert all(p.ndim > 1 for p in weights["params"])
    assert all(p.ndim == 1 for p in others["params"])
    for kind in (LARS, torch.optim.SGD):  # as it is, without `build_optimizer`
        decays = [
            group["weight_decay"] for group in kind(method.parameter_groups(), lr=0.1, weight_decay=0.2).param_groups
        ]
        assert decays == [0.2, 0]
    trained = sum(p.requires_grad for p in method.parameters())
    assert len(weights["params"]) + len(others["params"]) == trained


@pytest.mark.parametrize("name", METHODS)
def test_a_method_learns_in_bfloat16_and_compiles(name):
    method = small(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = method(batch()).loss
    loss.backward()
    assert loss.dtype == torch.float32
    compiled = torch.compile(method, backend="aot_eager")
    data, twin = batch(), copy.deepcopy(method)  # a step may write queues and centres
    torch.testing.assert_close(compiled(data).loss, twin(data).loss, rtol=1e-4, atol=1e-4)


def test_mistakes_in_a_loop_of_ones_own_are_one_line():
    with pytest.raises(UserError, match=r"^`features` is 7, but the encoder returns features of shape \(8, 6\)$"):
        BYOL(encoder(), 7, hidden=16, projection=5)(batch())
    with pytest.raises(UserError, match=r"got 'byoll': did you mean 'byol'\?$"):
        method_class("byoll")
    with pytest.raises(UserError, match=r"^`method` must be a class, got 'byoll'"):
        name_of("byoll")
    method, plain = byol(), byol()
    method.projection_losses = (ProjectionLoss("norm", 0.5, lambda z: z.norm()),)
    plain.projection_losses = (("norm", 0.5, lambda z: z.norm()),)
    plain.load_state_dict(method.state_dict())
    data = batch()
    torch.testing.assert_close(plain(data), method(data))


@pytest.mark.parametrize("name", METHODS)
def test_progress_may_be_any_number(name):
    """0 and 0.5 as Python has them do what tensors do."""
    one, other = small(name), small(name)
    other.load_state_dict(one.state_dict())
    for method in (one, other):
        with torch.no_grad():
            for p in method.encoder.parameters():
                p.add_(1)
    for progress in (0, 0.5):
        one.before_step(progress)
        one.after_step(progress)
        other.before_step(torch.tensor(float(progress)))
        other.after_step(torch.tensor(float(progress)))
    torch.testing.assert_close(one.state_dict(), other.state_dict())
