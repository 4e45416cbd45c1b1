"""Methods with prototypes, clusters and words, each against a literal reading of its equations in float64."""

import copy
import math
import signal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from torch import nn

from hypersphere.build import build_method, trainer_of, view_recipe
from hypersphere.config import recipe
from hypersphere.data import load_data
from hypersphere.errors import UserError
from hypersphere.machine import execution_of
from hypersphere.methods import DINO, Batch, DeepCluster, OBoW, SwAV
from hypersphere.methods.obow import Vocabulary
from hypersphere.methods.prototypes import Prototypes
from hypersphere.run import evaluate_on, initial_encoder, pretrain
from hypersphere.sphere import sinkhorn, spherical_kmeans
from hypersphere.train import loop
from hypersphere.train.checkpoint import restore
from hypersphere.views import Views

NAMES = ("swav", "dino", "deepcluster", "obow")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


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
    prototypes, z = Prototypes(5, 4), torch.randn(7, 5, requires_grad=True)
    torch.testing.assert_close(prototypes.weight.norm(dim=1), torch.ones(4))
    for released in (False, True):
        prototypes.release(torch.tensor(released))
        scores = prototypes(z)
        torch.testing.assert_close(scores, F.cosine_similarity(z[:, None], prototypes.weight[None], dim=2))
        (into_weight, into_z) = torch.autograd.grad(scores.square().sum(), [prototypes.weight, z])
        assert into_weight.any() == released
        assert into_z.any()
    with torch.no_grad():
        prototypes.weight.mul_(3)
    prototypes.release(torch.tensor(True))
    torch.testing.assert_close(prototypes.weight.norm(dim=1), torch.ones(4))


def test_prototypes_are_frozen_in_the_first_epoch_of_the_run():
    for kind in (SwAV, DINO):
        method = made(kind, prototypes=4, epochs=10)
        for progress, learning in ((0.0, False), (0.09, False), (0.1, True), (1.0, True)):
            method.after_step(torch.tensor(progress))
            assert method.prototypes.learning.item() == learning


def test_swav_predicts_the_codes_of_the_other_views():
    method, data = made(SwAV, prototypes=4), batch()
    method.prototypes.release(torch.tensor(True))
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
    method.prototypes.release(torch.tensor(True))
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


def test_dinos_teacher_has_the_students_head():
    method = made(DINO, prototypes=4, tau=0.0)
    with torch.no_grad():
        method.prototypes.weight.copy_(torch.randn(4, 5))
        method.projector[0].weight.add_(1)
    method.after_step(torch.tensor(0.0))
    torch.testing.assert_close(method.target[2].weight, method.prototypes.weight)
    torch.testing.assert_close(method.target[1][0].weight, method.projector[0].weight)


def separable(clusters=5, each=30, dimensions=8):
    centres = F.normalize(torch.randn(clusters, dimensions))
    noise = 0.05 * torch.randn(clusters, each, dimensions)
    return F.normalize((centres[:, None] + noise).flatten(0, 1))[torch.randperm(clusters * each)]


def test_k_means_is_that_of_scikit_learn_on_separable_points():
    points = separable()
    start = points[:12]  # several in a cluster: those with no points must stay
    centroids, labels = spherical_kmeans(points, start, 20)
    theirs = KMeans(12, init=start.numpy(), n_init=1, max_iter=20, tol=0).fit(points.numpy())
    assert (labels.numpy() == theirs.labels_).mean() > 0.99  # theirs are not of length 1
    torch.testing.assert_close(centroids.norm(dim=1), torch.ones(12))
    gap = centroids - F.normalize(torch.from_numpy(theirs.cluster_centers_))
    assert gap.norm(dim=1).max() < 0.05


def test_k_means_leaves_a_centroid_without_points_where_it_is():
    points, far = separable(1), -torch.ones(1, 8)
    start = torch.cat([points[:1], far * points[:1].sign()])
    centroids, labels = spherical_kmeans(points, start, 3)
    assert not labels.any()
    torch.testing.assert_close(centroids[1:], F.normalize(start[1:]))
    torch.testing.assert_close(centroids[0], F.normalize(points.sum(0), dim=0))


def test_deepcluster_classifies_images_by_the_clusters_of_their_projections():
    method, data = made(DeepCluster, prototypes=3, times=2), batch()
    features = torch.randn(20, 6)
    method.start_epoch(lambda: features)
    assert method.labels.shape == (2, 20)
    method.projector.eval()
    projected = F.normalize(method.projector(features)).detach()
    method.projector.train()
    for centroids, labels in zip(method.centroids, method.labels, strict=True):
        assert torch.equal(labels, (projected @ centroids.T).argmax(1))
        for k in labels.unique():
            members = projected[labels == k].sum(0)
            assert F.cosine_similarity(members, centroids[k], dim=0) > 0.999
    twin, _, z = in_double(method, data)
    wanted = 0
    for each in z:
        for centroids, labels in zip(twin.centroids, twin.labels, strict=True):
            targets = F.one_hot(labels[data.sample], 3).double()
            wanted = wanted + literal_cross_entropy(targets, literal_cosines(each, centroids), 0.1) / 6
    assert_same_loss(method, method(data), twin, wanted, "encoder", "projector")
    assert not method.centroids.requires_grad


def test_deepcluster_starts_elsewhere_each_time_each_epoch_and_for_each_seed():
    features = torch.randn(60, 6)
    one, again = (made(DeepCluster, prototypes=9) for _ in range(2))
    again.load_state_dict(one.state_dict())
    other = made(DeepCluster, prototypes=9, seed=1)
    other.load_state_dict(one.state_dict())
    for method in (one, again, other):
        method.start_epoch(lambda: features)
    assert torch.equal(one.labels, again.labels)
    assert not torch.equal(one.labels, other.labels)
    assert not torch.equal(one.labels[0], one.labels[1])
    held, before = one.labels, one.labels.clone()
    one.start_epoch(lambda: features)
    assert one.labels is held  # where a recorded update reads them
    assert not torch.equal(one.labels, before)


def test_a_deepcluster_run_is_restored_with_the_labels_of_its_epoch(tmp_path):
    method, fresh = made(DeepCluster, prototypes=3), made(DeepCluster, prototypes=3)
    method.start_epoch(lambda: torch.randn(20, 6))
    restore(fresh, method.state_dict(), tmp_path)
    data = batch()
    torch.testing.assert_close(fresh(data).loss, method(data).loss)


def test_clusters_need_images(tmp_path):
    with pytest.raises(UserError, match="`prototypes` 9 is more than the 8 images to be clustered"):
        made(DeepCluster, prototypes=9).start_epoch(lambda: torch.randn(8, 6))
    with pytest.raises(UserError, match="clusters images held in memory, not the files of imagenet"):
        build_method(recipe("deepcluster", "imagenet"), 3)


def test_a_bag_has_of_each_word_the_largest_share_over_places():
    vocabulary, places = Vocabulary(7, 4, sharpness=15.0), torch.randn(3, 9, 4)
    with torch.no_grad():
        vocabulary.distance.fill_(2.0)
    words = vocabulary.words.double()
    squared = torch.tensor([[[((p - w) ** 2).sum() for w in words] for p in image] for image in places.double()])
    distance = 0.99 * 2.0 + 0.01 * squared.amin(2).mean()
    shares = torch.softmax(-15 * squared / distance, dim=2).amax(1)
    bag = vocabulary.bag(places)
    torch.testing.assert_close(bag.double(), shares / shares.sum(1, keepdim=True), rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(vocabulary.distance.double(), distance, rtol=1e-5, atol=0)
    fresh = Vocabulary(7, 4, sharpness=15.0)
    fresh.bag(places)
    nearest = torch.cdist(places.flatten(0, 1), fresh.words).square().amin(1).mean()
    torch.testing.assert_close(fresh.distance, nearest)  # no average with what there was not


def test_a_vocabulary_takes_one_word_of_each_image_and_forgets_the_oldest():
    vocabulary, places = Vocabulary(7, 4, sharpness=1.0), torch.randn(5, 16, 4)
    before = vocabulary.words.clone()
    vocabulary.add(places, torch.tensor([0.0, 0.25, 0.5, 0.75, 0.99]))
    maps = places.view(5, 4, 4, 4)
    corners = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 1)]  # of the four 3 × 3 squares of a 4 × 4 map
    wanted = [maps[n, r : r + 3, c : c + 3].mean((0, 1)) for n, (r, c) in enumerate(corners)]
    torch.testing.assert_close(vocabulary.words[:5], torch.stack(wanted))
    assert torch.equal(vocabulary.words[5:], before[:2])
    vocabulary.add(places[:, :4], torch.zeros(5))  # too small a map
    torch.testing.assert_close(vocabulary.words[:5], places[:, :4].mean(1))
    vocabulary.add(torch.randn(9, 1, 4), torch.zeros(9))  # more images than words
    assert vocabulary.words.shape == (7, 4)


def test_obow_predicts_the_teachers_bags_of_the_other_views_at_two_scales():
    method, data = made(OBoW, prototypes=7), batch()
    with torch.no_grad():
        for weight in method.target.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    twin, views, z = in_double(method, data)
    assert method.blocks == ["0", "1"]
    with torch.no_grad():
        first = [twin.target[0](view) for view in views[:2]]
        maps = [first, [twin.target[1](x) for x in first]]
    words = [vocabulary.words.clone() for vocabulary in method.vocabularies]
    wanted = 0
    for scale, of_views in enumerate(maps):
        bags, distance = [], None
        for x in of_views:
            squared = torch.cdist(x.flatten(2).mT, words[scale].double()).square()
            least = squared.amin(2).mean()
            distance = least if distance is None else 0.99 * distance + 0.01 * least
            shares = torch.softmax(-15 * squared / distance, dim=2).amax(1)
            bags.append(shares / shares.sum(1, keepdim=True))
        weights = twin.generators[scale](words[scale].double())
        wanted = wanted + literal_swapped(bags, [literal_cosines(each, weights) for each in z], 0.125) / 2
    assert_same_loss(method, method(data), twin, wanted, "encoder", "projector", "generators")
    assert all(weight.grad is None for weight in method.target.parameters())
    assert not any((v.words == w).all() for v, w in zip(method.vocabularies, words, strict=True))
    assert method.updates == 1


def test_obow_without_blocks_takes_the_output_as_its_scale():
    flat = nn.Sequential(nn.Flatten(), nn.Linear(12, 6))
    method = OBoW(flat, 6, hidden=16, projection=5, prototypes=7)
    method(batch(sizes=(2, 2)))
    assert [vocabulary.words.shape for vocabulary in method.vocabularies] == [(7, 6)]


def trainer(name, **options):
    config = recipe(name, "digits", hidden=64, projection=16, device=DEVICE, **options)
    how = execution_of(config)
    method = build_method(config, 1).to(how.device).to(memory_format=how.layout).train()
    return config, trainer_of(config, method, how)


def batches(config, dtype, count):
    images = load_data("digits")[0].to(torch.device(DEVICE))
    views = Views(view_recipe(config), 0)
    for sample in torch.arange(count * 64, device=DEVICE).view(count, 64):
        yield Batch(views.training(images.pixels, sample, 0, dtype), sample, images.labels[sample])


@pytest.mark.parametrize("variant", ["", "-mhe", "-uni", "-uni-mhe"])
@pytest.mark.parametrize("name", NAMES)
def test_variants_take_a_step_with_small_crops(name, variant):
    config, one = trainer(name + variant, small_crops=1, prototypes=32)
    (data,) = batches(config, one.input_type, 1)
    assert len(data.views) == 3
    one.method.start_epoch(lambda: torch.randn(200, 128, device=DEVICE))
    before = copy.deepcopy(one.method.encoder.state_dict())
    terms = one.update([data], 0.001, 0.5)
    assert all(value.isfinite() for value in terms.values())
    assert name in terms
    assert ("uniformity" in terms, "regularizer" in terms) == ("uni" in variant, "mhe" in variant)
    assert any((before[key] != value).any() for key, value in one.method.encoder.state_dict().items())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="captures a CUDA graph")
@pytest.mark.parametrize("name", NAMES)
def test_replays_are_the_updates(name):
    """Also when an epoch begins between them."""
    from hypersphere.train import Captured

    torch.manual_seed(0)
    config, one = trainer(name, small_crops=1, precision="float32")
    other = copy.deepcopy(one.method)
    twin = trainer_of(config, other, execution_of(config))
    captured = Captured(one.update, one.device)
    for step, data in enumerate(batches(config, torch.float32, 8)):
        if step in (0, 6):
            features = torch.randn(1200, 128, device=DEVICE)
            one.method.start_epoch(lambda features=features: features)
            other.start_epoch(lambda features=features: features)
        ours, theirs = captured([data], 0.001, step / 8), twin.update([data], 0.001, step / 8)
        torch.testing.assert_close(ours["loss"], theirs["loss"], rtol=2e-3, atol=1e-3)
    assert captured.graph is not None


@pytest.mark.parametrize("name", ["deepcluster", "obow"])
def test_a_run_goes_on_in_the_middle_of_an_epoch_as_if_never_stopped(name, tmp_path, monkeypatch):
    """With its labels or words; two updates an epoch."""
    options = {"epochs": 2, "batch": 512, "hidden": 16, "projection": 8, "log_every": 1, "knn_every": 0}
    options |= {"device": DEVICE, "precision": "float32", "graph": "off", "progress": False}
    whole = pretrain(name, "digits", out=tmp_path / "whole", **options)
    write = loop._write
    monkeypatch.setattr(
        loop,
        "_write",
        lambda log, step, *a: (write(log, step, *a), step == 3 and signal.raise_signal(signal.SIGINT))[0],
    )
    with pytest.raises(KeyboardInterrupt):
        pretrain(name, "digits", out=tmp_path / "part", **options)
    monkeypatch.setattr(loop, "_write", write)
    part = pretrain(resume=tmp_path / "part", progress=False)
    for key, value in whole.method.state_dict().items():
        assert torch.equal(part.method.state_dict()[key], value), key


@pytest.fixture(scope="module")
def few_shot_before():
    """Of the encoder that all of them begin with."""
    config = recipe("swav", "digits", device=DEVICE)
    return evaluate_on(initial_encoder(config), config, ["few-shot"], "validation")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("swav", {"epochs": 4}),
        ("dino", {"epochs": 4}),
        ("deepcluster", {"epochs": 4}),
        ("obow", {"epochs": 6, "tau": 0.9}),  # of few updates, each must count
    ],
)
def test_it_learns_digits(name, options, few_shot_before, tmp_path):
    """Accuracy in per cent with one and five labels a class, above that of the random encoder."""
    run = pretrain(name, "digits", out=tmp_path / "run", device=DEVICE, knn_every=0, progress=False, **options)
    after = evaluate_on(run.encoder, run.config, ["few-shot"], "validation")
    assert after["1-shot"]["top1"] > few_shot_before["1-shot"]["top1"] + 10
    assert after["5-shot"]["top1"] > few_shot_before["5-shot"]["top1"] + 5
