"""Each probe against an independent implementation, on the same vectors."""

import math
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler, normalize
from torch import nn

import hypersphere as hs
from hypersphere.data import load_data
from hypersphere.data.loader import MemoryLoader, center_view
from hypersphere.diagnostics.layers import EnergyMonitor
from hypersphere.errors import UserError
from hypersphere.evaluate import (
    KnnMonitor,
    accuracy,
    evaluate_encoder,
    extract,
    features_of,
    few_shot,
    knn,
    linear,
    linear_cached,
    suite,
)
from hypersphere.evaluate.knn import SETTINGS, knn_by_setting
from hypersphere.evaluate.linear import SoftmaxRegression
from hypersphere.views import PIPELINES, Views


@pytest.fixture(scope="module")
def sets():
    """Digits as vectors of 64 pixels: features, labels, queries, truth; one of the 360 queries is 0.28 points."""
    train, test = load_data("digits", "test")
    vectors = [images.pixels.flatten(1).float() / 255 for images in (train, test)]
    return vectors[0], train.labels, vectors[1], test.labels


def test_accuracy_counts():
    scores = torch.tensor([[0.1, 0.9, 0, 0, 0, 0], [0.5, 0.4, 0.3, 0.2, 0.1, 0.0]])
    assert accuracy(scores, torch.tensor([1, 4])) == (50.0, 100.0)
    assert accuracy(scores, torch.tensor([1, 5])) == (50.0, 50.0)
    assert accuracy(scores[:, :3], torch.tensor([2, 2])) == (0.0, 100.0)


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.1), (20, 0.07), (200, 0.1)])
def test_knn_agrees_with_scikit_learn(sets, k, temperature):
    features, labels, queries, truth = sets
    theirs = KNeighborsClassifier(k, metric="cosine", weights=lambda d: np.exp((1 - d) / temperature))
    theirs.fit(features.double(), labels)
    wanted = 100 * theirs.score(queries.double(), truth)
    assert knn(features, labels, queries, truth, k, temperature).top1 == pytest.approx(wanted, abs=0.3)


def test_accuracies_by_setting_are_those_of_each_setting(sets):
    features, labels, queries, truth = sets
    assert knn_by_setting(*sets) == {setting: knn(*sets, *setting).top1 for setting in SETTINGS}
    assert len({*SETTINGS}) == 20
    features, labels, queries, truth = sets
    every = knn_by_setting(*sets).values()
    (measured,) = suite._probe_features(sets, ["knn"], 20, 0.07)
    assert measured["knn"]["range"] == max(every) - min(every) > 0
    assert measured["knn"]["top1_of_200"] == knn(*sets, 200, 0.1).top1 != measured["knn"]["top1"]
    (few,) = suite._probe_features((features[:99], labels[:99], queries, truth), ["knn"], 20, 0.07)
    assert "top1_of_200" not in few["knn"]
    few = knn_by_setting(features[:15], labels[:15], queries, truth)  # where there are fewer than k
    assert few[20, 0.07] == few[200, 0.07]


def test_a_class_without_a_vote_is_no_answer_of_knn():
    """Nor does a low temperature make all votes vanish."""
    features, labels = torch.eye(6), torch.arange(6)
    queries = torch.tensor([[0.2, 0.1, 0.0, 0.0, 0.0, 1.0]])
    for truth, top5 in ((5, 100.0), (0, 100.0), (1, 0.0), (2, 0.0)):
        found = knn(features, labels, queries, torch.tensor([truth]), k=2, temperature=0.02)
        assert found == (100.0 * (truth == 5), top5), truth
    assert knn(features, labels, -queries, torch.tensor([2]), k=3, temperature=0.001).top5 == 100


def test_linear_cached_agrees_with_scikit_learn(sets):
    features, labels, queries, truth = sets
    scaler = StandardScaler().fit(features)
    theirs = LogisticRegression(C=1.0, max_iter=2000).fit(scaler.transform(features), labels)
    wanted = 100 * theirs.score(scaler.transform(queries), truth)
    assert linear_cached(features, labels, queries, truth).top1 == pytest.approx(wanted, abs=0.3)


def test_few_shot_with_every_label_is_the_nearest_centroid(sets):
    features, labels, queries, truth = sets
    unit, unit_queries = normalize(features), normalize(queries)
    means = normalize(np.stack([unit[labels == c].mean(0) for c in range(10)]))
    wanted = 100 * (np.argmax(unit_queries @ means.T, 1) == truth.numpy()).mean()
    mean, half_width = few_shot(features, labels, queries, truth, shots=10_000, draws=3)
    assert mean == pytest.approx(wanted, abs=1e-6)
    assert half_width == 0


@pytest.mark.parametrize("draws", [2, 5])
def test_few_shot_has_the_t_interval_of_its_draws(sets, draws):
    means = [few_shot(*sets, shots=1, draws=n)[0] * n for n in range(1, draws + 1)]
    each = np.diff([0, *means])
    mean, half_width = few_shot(*sets, shots=1, draws=draws)
    low, high = scipy.stats.t.interval(0.95, draws - 1, each.mean(), scipy.stats.sem(each))
    assert (mean - half_width, mean + half_width) == pytest.approx((low, high))
    assert math.isnan(few_shot(*sets, shots=1, draws=1)[1])


def test_few_shot_has_the_classes_that_have_an_example(sets):
    features, labels, queries, truth = sets
    there = labels != 4
    classes = np.array([0, 1, 2, 3, 5, 6, 7, 8, 9])
    means = normalize(np.stack([normalize(features)[labels == c].mean(0) for c in classes]))
    wanted = 100 * (classes[np.argmax(normalize(queries) @ means.T, 1)] == truth.numpy()).mean()
    for name in (lambda y: y, lambda y: 1000 * y + 7):  # ids need not be those of all classes, nor near each other
        found, _ = few_shot(features[there], name(labels[there]), queries, name(truth), shots=10_000, draws=2)
        assert found == pytest.approx(wanted, abs=1e-6)
    assert 70 < wanted < 90  # a tenth of the queries are fours


def test_few_shot_grows_with_shots_and_is_seeded(sets):
    one, again, five = (few_shot(*sets, shots=s)[0] for s in (1, 1, 5))
    assert one == again
    assert 50 < one < five < 95


def test_linear_learns_what_a_linear_layer_can(sets):
    train, test = load_data("digits")
    recipe = PIPELINES["digits"]
    epochs = []
    options = {"epochs": 30, "after_epoch": epochs.append}
    found = linear(nn.Flatten(), *(MemoryLoader(some, Views(recipe, 0)) for some in (train, test)), **options)
    assert epochs == list(range(1, 31))
    assert found.top1 > 88
    assert found.top5 > 98


def test_the_closed_form_is_torchs_sgd(sets):
    features, labels, _, _ = sets
    features, labels, rates = features[:120], labels[:120], torch.linspace(1, 0.1, 4)
    ours, theirs = SoftmaxRegression(64, 10, features.device), nn.Linear(64, 10)
    nn.init.zeros_(theirs.weight)
    nn.init.zeros_(theirs.bias)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=1.0, momentum=0.9, nesterov=True)
    for x, y, rate in zip(features.split(30), labels.split(30), rates, strict=True):
        optimizer.param_groups[0]["lr"] = float(rate)
        optimizer.zero_grad()
        nn.functional.cross_entropy(theirs(x), y).backward()
        optimizer.step()
    ours.learn(features, labels, 30, rates)
    torch.testing.assert_close(ours.scores(features), theirs(features).detach(), rtol=1e-4, atol=1e-5)


def test_features_are_of_the_frozen_encoder_and_its_modes_are_restored():
    encoder = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Dropout(0.5))
    encoder[2].eval()
    pixels = torch.randint(0, 256, (30, 1, 8, 8), dtype=torch.uint8)
    before = encoder[1].running_mean.clone()
    found = extract(encoder, pixels, lambda p: p.float(), batch=7)
    torch.testing.assert_close(found, pixels.flatten(1).float() / (1 + 1e-5) ** 0.5)
    assert torch.equal(encoder[1].running_mean, before)
    assert [m.training for m in encoder] == [True, True, False]


@pytest.mark.parametrize(
    ("stored", "shown", "most"),
    [(8, 8, 500), (32, 32, 500), (64, 64, 500), (96, 64, 227), (256, 224, 32), (32, 224, 41), (2000, 64, 1)],
)
def test_large_images_are_shown_fewer_at_a_time(stored, shown, most):
    class Told(nn.Flatten):
        def forward(self, x):
            seen.append(len(x))
            return super().forward(x)[:, :1]

    seen = []
    pixels = torch.zeros(1, 1, 1, 1, dtype=torch.uint8).expand(501, 1, stored, stored)
    extract(Told(), pixels, lambda part: part[:, :, :1, :1].float().expand(-1, -1, shown, shown))
    assert (max(seen), sum(seen)) == (most, 501)


def test_the_suite_and_the_monitor_agree():
    train, test = load_data("digits")
    recipe = PIPELINES["digits"]
    shown = [MemoryLoader(some, Views(recipe, 0)) for some in (train, test)]
    found = evaluate_encoder(nn.Flatten(), *shown, ("knn", "few-shot"), neighbours=20)
    assert found.keys() == {"1-shot", "5-shot", "knn", "sphere"}
    monitor = KnnMonitor(1, train, test, recipe, 20, 0.1)
    assert monitor(nn.Flatten())["knn"] == found["knn"]["top1"]
    with pytest.raises(UserError, match="'svm'"):
        evaluate_encoder(nn.Flatten(), *shown, ("svm",))


class Dead(nn.Module):
    """Zero wherever an image's first pixels are dark."""

    def __init__(self, above):
        super().__init__()
        self.above = above

    def forward(self, images):
        features = images.flatten(1)
        return features * (features[:, :8].mean(1, keepdim=True) > self.above)


def test_rows_of_zeros_are_told_and_make_nothing_even():
    train, test = load_data("digits")
    shown = [MemoryLoader(some, Views(PIPELINES["digits"], 0)) for some in (train, test)]
    features = features_of(shown[1], Dead(-0.5))[0]
    there = features[features.any(1)]
    assert 2 < len(there) < len(features)
    found = evaluate_encoder(Dead(-0.5), *shown, ("knn",))["sphere"]
    assert found["zero_rows"] == len(features) - len(there)
    assert found["uniformity"] == pytest.approx(hs.uniformity(there).item())
    assert evaluate_encoder(Dead(1e9), *shown, ("knn",))["sphere"] == {"images": 300, "zero_rows": 300}
    knn = KnnMonitor(1, train, test, PIPELINES["digits"], 20, 0.1)(Dead(-0.5))
    assert knn["uniformity_of_features"] == pytest.approx(found["uniformity"])
    inputs = center_view(PIPELINES["digits"])(test.pixels)
    energies = EnergyMonitor(1, lambda: [inputs], {}, torch.float32)(Dead(-0.5))
    assert energies["uniformity_of_features"] == pytest.approx(found["uniformity"])
    assert energies["energy/output"] == pytest.approx(hs.hyperspherical_energy(there, 2, "geodesic").item(), rel=1e-4)
    assert math.isnan(EnergyMonitor(1, lambda: [inputs], {}, torch.float32)(Dead(1e9))["energy/output"])


@pytest.mark.parametrize("known", [0, 1])
def test_one_held_out_image_is_told_before_any_probe(known):
    train, test = load_data("digits")
    views, labels = Views(PIPELINES["digits"], 0), torch.tensor([3, -1, -1])
    few = replace(test[torch.arange(3)], labels=labels if known else labels.clamp(max=-1))
    seen = []
    encoder = nn.Flatten()
    encoder.register_forward_hook(lambda module, given, found: seen.append(len(found)))
    with pytest.raises(UserError, match=f"at least two readable held-out images with labels, got {known}"):
        evaluate_encoder(encoder, MemoryLoader(train, views), MemoryLoader(few, views))
    assert seen == [known]


def test_neighbours_of_few_queries_at_a_time_are_the_same(sets, monkeypatch):
    features, labels, queries, truth = sets
    wanted = knn(features, labels, queries, truth, 20, 0.07)
    monkeypatch.setattr(import_module("hypersphere.evaluate.knn"), "AT_ONCE", 3 * len(features))
    assert knn(features, labels, queries, truth, 20, 0.07) == wanted


def test_a_long_probe_is_announced_without_counting_on_its_slow_first_epoch(monkeypatch):
    """10 seconds for the first epoch, which decodes images, and one second for each of the others: 89 in all."""
    now, told = [0.0], []
    monkeypatch.setattr(suite.time, "monotonic", lambda: now[0])
    bar = SimpleNamespace(line=told.append, update=lambda done: None)
    after_epoch = suite._announced(bar, "linear", 80)
    for epoch, seconds in enumerate((10.0, 1.0, 1.0), 1):
        now[0] += seconds
        after_epoch(epoch)
    assert told == ["linear: about 89 s for 80 epochs; what is finished is kept after Ctrl-C"]
    after_epoch = suite._announced(bar, "linear", 2)
    for epoch in (1, 2):
        now[0] += 30.0
        after_epoch(epoch)
    assert told[1:] == ["linear: up to 60 s for 2 epochs; what is finished is kept after Ctrl-C"]
