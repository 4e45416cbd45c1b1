"""Each loss against its equation in a literal loop, value and gradient, in float64; then what a step does besides."""

import copy
import sys

import pytest
import torch
from torch import nn

from hypersphere.config import recipe
from hypersphere.errors import UserError
from hypersphere.losses import barlow_loss, moco_loss, negative_cosine
from hypersphere.methods import BYOL, BarlowTwins, Batch, InfoMin, MoCo, SimCLR, SimSiam, Supervised, VICReg
from hypersphere.methods.infomin import patches_of, shuffled
from hypersphere.methods.supervised import cross_entropy
from hypersphere.nn.norm import separate_view_statistics, together
from hypersphere.optim import scaled
from hypersphere.runs.build import optimizer_of
from hypersphere.train import Trainer
from hypersphere.train.half_precision import HalfPrecisionLoss
from hypersphere.util.random_numbers import JIGSAW, uniforms
from tests.methods import reference


def encoder():
    flat = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())
    return nn.Sequential(flat, nn.Linear(12, 6), nn.BatchNorm1d(6))


def batch(n=8, label=None):
    return Batch((torch.randn(n, 3, 4, 4), torch.randn(n, 3, 4, 4)), torch.arange(n), label)


def points(*shapes):
    return [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def assert_alike(ours, theirs, inputs):
    """In value, and in the gradient of each input; None is a stopped gradient."""
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(
        *(torch.autograd.grad(loss, inputs, allow_unused=True) for loss in (ours, theirs)),
        strict=True,
    ):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b)


def test_simsiam_is_its_equation():
    inputs = p1, p2, z1, z2 = points(*[(7, 5)] * 4)
    ours = (negative_cosine(p1, z2) + negative_cosine(p2, z1)) / 2
    assert_alike(ours, reference.simsiam(p1, p2, z1, z2), inputs)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_moco_is_its_equation(temperature):
    inputs = query, key, queue = points((6, 5), (6, 5), (9, 5))
    ours = moco_loss(query, key, queue, temperature)
    assert_alike(ours, reference.moco(query, key, queue, temperature), inputs)


@pytest.mark.parametrize("weight", [0.0, 0.005, 1.0])
def test_barlow_is_its_equation(weight):
    inputs = points((9, 4), (9, 4))
    assert_alike(barlow_loss(*inputs, weight), reference.barlow(*inputs, weight), inputs)


def test_barlow_of_uncorrelated_dimensions_that_agree_is_nothing():
    signs = torch.tensor([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=torch.float64)
    assert barlow_loss(signs, 3 * signs + 1, 0.5).item() == pytest.approx(0, abs=1e-12)
    assert barlow_loss(signs, -signs, 0.5).item() == pytest.approx(4)


@pytest.mark.parametrize("label", [[0, 2, 1, 1], [0, -1, 2, -1], [-1, -1, -1, -1]])
def test_cross_entropy_is_its_equation_over_known_labels(label):
    (logits,) = points((4, 3))
    label = torch.tensor(label)
    ours, theirs = cross_entropy(logits, label), reference.cross_entropy(logits, label)
    if (label >= 0).any():
        assert_alike(ours, theirs, [logits])
    else:
        assert ours.item() == 0
        assert torch.autograd.grad(ours, logits)[0].abs().sum() == 0


def test_simsiam_predicts_the_other_view_with_a_normalized_projection():
    method, data = SimSiam(encoder(), 6, hidden=16, projection=5, bottleneck=3, layers=3), batch()
    assert [m.out_features for m in method.projector.modules() if isinstance(m, nn.Linear)] == [16, 16, 5]
    assert [m.out_features for m in method.predictor.modules() if isinstance(m, nn.Linear)] == [3, 5]
    twin = copy.deepcopy(method)
    z1, z2 = (twin.projector(twin.encoder(view)) for view in data.views)
    torch.testing.assert_close(z1.mean(0), torch.zeros(5), atol=1e-5, rtol=0)  # BatchNorm at the end
    wanted = reference.simsiam(twin.predictor(z1), twin.predictor(z2), z1, z2)
    found = method(data).loss
    torch.testing.assert_close(found, wanted)
    ours = torch.autograd.grad(found, list(method.parameters()))
    for a, b in zip(ours, torch.autograd.grad(wanted, list(twin.parameters())), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-3)


def test_simsiams_predictor_may_keep_its_learning_rate():
    """A step of SGD without momentum is that rate times the gradient."""
    config = recipe("simsiam", "cifar10", predictor_decays=False, momentum=0.0, weight_decay=0.0, precision="float32")
    method, data = SimSiam(encoder(), 6, hidden=16, projection=5, bottleneck=3, predictor_decays=False), batch()
    trained = [p for p in method.parameters() if p.requires_grad]
    twin = copy.deepcopy(method)
    wanted = torch.autograd.grad(twin(data).loss, list(twin.parameters()))
    rates = {"predictor": scaled(0.03, 512), "encoder": 0.001, "projector": 0.001}
    trainer = Trainer(method, optimizer_of(config, method), None, torch.device("cpu"), torch.float32)
    trainer.update([data], 0.001, 0.9)
    for (name, p), old, gradient in zip(method.named_parameters(), twin.parameters(), wanted, strict=True):
        torch.testing.assert_close(p, old - rates[name.split(".")[0]] * gradient, msg=name)
    assert sum(len(group["params"]) for group in method.parameter_groups()) == len(trained)
    assert not recipe("simsiam", "imagenet").predictor_decays


def moco(kind=MoCo, **options):
    return kind(encoder(), 6, hidden=16, projection=5, **{"queue": 20, **options})


def test_moco_compares_the_first_view_with_the_second_views_key_and_the_queue():
    method, data = moco(temperature=0.2), batch()
    with torch.no_grad():
        for weight in method.target.parameters():
            weight.add_(0.1)
    twin = copy.deepcopy(method)
    query, key = twin.projector(twin.encoder(data.views[0])), twin.target(data.views[1])
    step = method(data)
    torch.testing.assert_close(step.loss, reference.moco(query, key, twin.queue, 0.2))
    step.loss.backward()
    assert all(weight.grad is None for weight in method.target.parameters())
    assert all(weight.grad is not None for part in (method.encoder, method.projector) for weight in part.parameters())


def test_the_queue_is_first_in_first_out_and_of_unit_keys():
    method = moco(queue=20)
    before, keys = method.queue.clone(), []
    for step in range(4):
        data = batch()
        keys.append(torch.nn.functional.normalize(copy.deepcopy(method).target(data.views[1])).detach())
        method(data)
        newest_first = torch.cat([*reversed(keys), before])[:20]
        torch.testing.assert_close(method.queue, newest_first, msg=f"after {step + 1} batches")
    assert not method.queue.requires_grad
    assert "queue" in method.state_dict()


def test_a_batch_longer_than_the_queue_fills_it():
    method, data = moco(queue=3), batch()
    key = torch.nn.functional.normalize(copy.deepcopy(method).target(data.views[1])).detach()
    method(data)
    torch.testing.assert_close(method.queue, key[:3])


def test_a_key_is_no_negative_of_its_own_query():
    """The loss is of the queue as it was before the batch."""
    method, data = moco(), batch()
    twin = copy.deepcopy(method)
    first = method(data).loss
    twin.queue.copy_(torch.cat([twin.key_of(data.views[1]), twin.queue])[:20])
    assert twin(data).loss > first


@pytest.mark.parametrize("kind", [MoCo, InfoMin])
def test_the_key_network_is_a_moving_average_of_fixed_decay(kind):
    for progress in (0.0, 0.7, 1.0):
        method = moco(kind, tau=0.9, **({"jigsaw": 2} if kind is InfoMin else {}))
        before = [weight.clone() for weight in method.target.parameters()]
        with torch.no_grad():
            for weight in method.parameters():
                if weight.requires_grad:
                    weight.add_(1)
        method.after_step(torch.tensor(progress))
        online = [*method.encoder.parameters(), *method.projector.parameters()]
        for old, new, now in zip(before, online, method.target.parameters(), strict=True):
            torch.testing.assert_close(now, reference.target_after(old, new, 0.9))


def test_queries_and_keys_have_statistics_of_different_groups():
    """Of 256 images in 4 groups: a group of queries is 64 neighbours, one of keys every fourth image."""
    method, data = moco(), batch(256)
    seen = {"query": [], "key": []}
    method.encoder[1].register_forward_hook(lambda m, i, o: seen["query"].append(i[0].detach()))
    method.target[0][1].register_forward_hook(lambda m, i, o: seen["key"].append(i[0].detach()))
    method(data)
    images = [torch.nn.functional.adaptive_avg_pool2d(view, 2).flatten(1) for view in data.views]
    for group in range(4):
        torch.testing.assert_close(seen["query"][group], images[0][64 * group : 64 * (group + 1)])
        torch.testing.assert_close(seen["key"][group], images[1][group::4])


def test_keys_of_groups_come_back_in_the_order_of_their_images():
    method = moco().eval()  # without batch statistics groups make no difference
    view = torch.randn(256, 3, 4, 4)
    torch.testing.assert_close(method.key_of(view), torch.nn.functional.normalize(method.target(view)))


def test_patches_are_the_cells_of_a_grid_row_by_row():
    view = torch.arange(2 * 1 * 7 * 7.0).view(2, 1, 7, 7)
    found = patches_of(view, 3)
    assert found.shape == (18, 1, 2, 2)
    for image in range(2):
        for row in range(3):
            for column in range(3):
                cell = view[image, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
                assert torch.equal(found[9 * image + 3 * row + column], cell)
    view = torch.randn(2, 3, 8, 8)
    last = patches_of(view.to(memory_format=torch.channels_last), 2)
    assert torch.equal(last, patches_of(view, 2))
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert patches_of(view, 2).is_contiguous()


def test_parts_are_shuffled_image_by_image():
    parts, order = torch.randn(2, 3, 4), torch.tensor([[2, 0, 1], [1, 2, 0]])
    found = shuffled(parts, order)
    for image in range(2):
        assert torch.equal(found[image], torch.cat([parts[image, place] for place in order[image]]))


def jigsaw_of(method, view, sample, update):
    """Literally: cells of a 2 × 2 grid, encoded, in the order of the numbers drawn for the image."""
    cells = [view[i : i + 1, :, 2 * r : 2 * r + 2, 2 * c : 2 * c + 2] for i in range(8) for r in (0, 1) for c in (0, 1)]
    features = method.encoder(torch.cat(cells))
    drawn = uniforms(4, sample, seed=3, epoch=update, stream=JIGSAW).tolist()
    rows = []
    for i, numbers in enumerate(drawn):
        order = sorted(range(4), key=numbers.__getitem__)
        rows.append(torch.cat([features[4 * i + place] for place in order]))
    return method.jigsaw_projector(torch.stack(rows))


def test_infomin_is_the_mean_of_the_image_and_of_its_jigsaw_against_one_queue():
    method, data = moco(InfoMin, jigsaw=2, seed=3), batch()
    for update in range(2):  # each has other orders
        twin = copy.deepcopy(method)
        puzzle = jigsaw_of(twin, data.views[0], data.sample, update)
        query, key = twin.projector(twin.encoder(data.views[0])), twin.target(data.views[1])
        wanted = (reference.moco(query, key, twin.queue, 0.15) + reference.moco(puzzle, key, twin.queue, 0.15)) / 2
        torch.testing.assert_close(method(data).loss, wanted)
        torch.testing.assert_close(method.queue[8:], twin.queue[:12])  # a batch of keys, not of jigsaws as well
    assert method.state_dict()["updates"].item() == 2  # a resumed run goes on with other orders


def test_barlow_is_of_the_projections():
    method, data = BarlowTwins(encoder(), 6, hidden=16, projection=5, redundancy=0.1), batch()
    twin = copy.deepcopy(method)
    z1, z2 = (twin.projector(twin.encoder(view)) for view in data.views)
    torch.testing.assert_close(method(data).loss, reference.barlow(z1, z2, 0.1))
    assert [m.out_features for m in method.projector if isinstance(m, nn.Linear)] == [16, 16, 5]


def test_vicreg_is_of_the_projections():
    weights = {"invariance": 3.0, "variance": 5.0, "covariance": 2.0}
    method, data = VICReg(encoder(), 6, hidden=16, projection=5, **weights), batch()
    twin = copy.deepcopy(method)
    z1, z2 = (twin.projector(twin.encoder(view)) for view in data.views)
    torch.testing.assert_close(method(data).loss, reference.vicreg(z1, z2, **weights))


def test_simclr_may_leave_the_positive_out_of_the_denominator():
    method, data = SimCLR(encoder(), 6, hidden=16, projection=5, temperature=0.2, decoupled=True), batch()
    twin = copy.deepcopy(method)
    z1, z2 = (twin.projector(twin.encoder(view)) for view in data.views)
    step = method(data)
    torch.testing.assert_close(step.loss, reference.dcl(z1, z2, 0.2))
    assert {*step.terms} == {"dcl"}


def test_supervised_is_the_mean_cross_entropy_of_the_views():
    data = batch(label=torch.tensor([0, 1, 2, 2, -1, 0, -1, 1]))
    method = Supervised(encoder(), 6, classes=3)
    twin = copy.deepcopy(method)
    one, other = (reference.cross_entropy(twin.classifier(twin.encoder(view)), data.label) for view in data.views)
    torch.testing.assert_close(method(data).loss, (one + other) / 2)
    with pytest.raises(UserError, match="labels"):
        method(batch())
    with pytest.raises(UserError, match="at least two classes, got 0"):
        Supervised(encoder(), 6, classes=0)


def test_byol_without_predictor_compares_projections():
    method, data = BYOL(encoder(), 6, hidden=16, projection=5, predictor=False), batch()
    with torch.no_grad():
        for weight in method.target.parameters():
            weight.add_(0.1)
    twin = copy.deepcopy(method)
    z1, z2 = (twin.projector(twin.encoder(view)) for view in data.views)
    t1, t2 = (twin.target(view).detach() for view in data.views)
    pairs = [*zip(z1, t2, strict=True), *zip(z2, t1, strict=True)]
    wanted = sum(2 - 2 * reference.cosine(z, t) for z, t in pairs) / 8
    torch.testing.assert_close(method(data).loss, wanted)
    assert not list(method.predictor.parameters())


@pytest.mark.parametrize("kind", [MoCo, InfoMin])
def test_weights_converted_at_once_write_the_same_queue(kind):
    """As a GPU does it: see `HalfPrecisionLoss`."""
    method, data = moco(kind, **({"jigsaw": 2} if kind is InfoMin else {})), batch()
    twin = copy.deepcopy(method)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, theirs = HalfPrecisionLoss(method, torch.bfloat16)(data), twin(data)
    torch.testing.assert_close(ours.loss, theirs.loss)
    for (name, a), b in zip(method.named_buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(a, b, msg=name)


@pytest.mark.parametrize("kind", [MoCo, InfoMin, SimSiam, BarlowTwins])
def test_views_in_one_pass_give_the_same_loss(kind, monkeypatch):
    """As a GPU does it: see `each_view`."""
    method, data = kind(encoder(), 6, hidden=16, projection=5), batch(128)
    twin = copy.deepcopy(method)
    wanted = twin(data).loss
    calls = []

    def at_once(network, views):
        assert separate_view_statistics(network)
        calls.append(len(views))
        return together(network, views)

    monkeypatch.setattr(sys.modules[kind.__module__], "each_view", at_once, raising=False)
    monkeypatch.setattr("hypersphere.nn.norm.each_view", at_once)  # of `each_group`
    torch.testing.assert_close(method(data).loss, wanted)
    assert calls[0] == 2
