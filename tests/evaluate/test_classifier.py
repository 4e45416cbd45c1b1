"""The linear head and its calibration, against scikit-learn and closed forms."""

import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from hypersphere.data import Images
from hypersphere.evaluate.calibration import calibrated_apart, fit_temperature, reliability
from hypersphere.evaluate.classifier import DECAYS, LinearHead, fit_head
from hypersphere.inference.classifying import Classified


def blobs(n, dimensions=20, classes=4, spread=2.0, seed=0):
    rng = np.random.default_rng(seed)
    means = np.random.default_rng(7).standard_normal((classes, dimensions))
    labels = rng.integers(0, classes, n)
    return (means[labels] + spread * rng.standard_normal((n, dimensions)) + 3).astype(np.float32), labels


def test_the_head_is_scikit_learns_logistic_regression():
    (x, y), (queries, truth) = blobs(400), blobs(1000, seed=1)
    head = fit_head(torch.from_numpy(x), torch.from_numpy(y), 4)
    assert head.decay in DECAYS
    first = [Normalizer()] if head.normalized else []
    theirs = make_pipeline(*first, StandardScaler(), LogisticRegression(C=1 / head.decay, max_iter=5000, tol=1e-8))
    wanted = theirs.fit(x, y).predict_proba(queries)
    found = head.scores(torch.from_numpy(queries)).softmax(dim=1).numpy()
    np.testing.assert_allclose(found, wanted, atol=3e-3)  # deviations divide by N there, by N − 1 here
    assert (found.argmax(1) == truth).mean() > 0.6


def test_of_two_classes_scikit_learn_counts_the_penalty_once():
    """As docs/how-to/classify.md says: it has the difference of our two vectors of weights."""
    x, y = blobs(200, classes=2)
    head = fit_head(torch.from_numpy(x), torch.from_numpy(y), 2)
    first = [Normalizer()] if head.normalized else []
    theirs = make_pipeline(*first, StandardScaler(), LogisticRegression(C=2 / head.decay, max_iter=5000, tol=1e-8))
    found = head.scores(torch.from_numpy(x)).softmax(dim=1).numpy()
    np.testing.assert_allclose(found, theirs.fit(x, y).predict_proba(x), atol=3e-3)


def test_regularization_is_strong_for_noise_and_weak_without():
    noise = torch.randn(200, 100, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(200) % 4
    assert fit_head(noise, labels, 4).decay >= 1000
    assert fit_head(torch.eye(4)[labels] + 0.01 * noise[:, :4], labels, 4).decay <= 0.1


def test_lengths_are_used_where_they_tell_and_left_out_where_they_do_not():
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 2
    directions = torch.nn.functional.normalize(torch.randn(300, 5, generator=rng), dim=1)
    assert not fit_head(directions * (1 + labels)[:, None], labels, 2).normalized
    sides = torch.tensor([[1.0, 0.3], [1.0, -0.3]])[labels] + 0.15 * torch.randn(300, 2, generator=rng)
    assert fit_head(sides * (4 * torch.randn(300, 1, generator=rng)).exp(), labels, 2).normalized


def test_classes_with_one_image_and_classes_without():
    head = fit_head(torch.eye(3), torch.tensor([0, 1, 3]), 5)
    assert head.scores(torch.eye(3)).argmax(1).tolist() == [0, 1, 3]
    assert head.weight.shape == (5, 3)
    assert math.isfinite(float(head.bias.sum()))


def test_the_temperature_that_was_applied_is_found():
    rng = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(5000, 6, generator=rng)
    labels = torch.multinomial(scores.softmax(1), 1, generator=rng)[:, 0]
    for temperature in (0.4, 1.0, 3.0):
        assert fit_temperature(temperature * scores, labels) == pytest.approx(temperature, rel=0.05)
    assert reliability((3 * scores).softmax(1), labels).error > 0.1
    assert reliability(calibrated_apart(3 * scores, labels), labels).error < 0.03
    certain = 10 * torch.eye(5)[torch.arange(20) % 5]
    assert 0.5 < fit_temperature(certain, torch.arange(20) % 5) < 10  # not 0, although all are correct


def test_a_temperature_is_kept_only_if_it_helps(tmp_path):
    rng = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(300, 6, generator=rng)
    labels = torch.multinomial(scores.softmax(1), 1, generator=rng)[:, 0]
    images, kept = Images(torch.zeros(300, 1, 2, 2, dtype=torch.uint8), labels, tuple("abcdef")), set()
    for factor in (0.5, *(0.9 + 0.02 * n for n in range(11)), 2.0):
        found = Classified(tmp_path, images.classes, labels, factor * scores, [], images, 1)
        raw, apart = (factor * scores).softmax(1), calibrated_apart(factor * scores, labels)
        before, after = (sklearn.metrics.log_loss(labels, p.numpy()) for p in (raw, apart))
        torch.testing.assert_close(found.probabilities, apart if after < before else raw)
        assert (found.temperature is None) == (after >= before) == bool(found.uncalibrated)
        kept.add((after < before, factor in (0.5, 2.0)))
    assert kept == {(True, True), (True, False), (False, False)}  # always if scores are far off


def test_halves_do_not_see_their_own_labels():
    scores = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(40) % 3
    before = calibrated_apart(scores, labels)
    labels[::2] = (labels[::2] + 1) % 3
    changed = calibrated_apart(scores, labels) != before
    assert changed[1::2].any()
    assert not changed[::2].any()


def test_calibration_error_by_hand():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(3), 500)
    labels = rng.integers(0, 3, 500)
    sure, right = probabilities.max(1), probabilities.argmax(1) == labels
    wanted = 0.0
    for low in np.arange(15) / 15:
        inside = (sure > low) & (sure <= low + 1 / 15)
        if inside.any():
            wanted += inside.mean() * abs(sure[inside].mean() - right[inside].mean())
    found = reliability(torch.from_numpy(probabilities), torch.from_numpy(labels))
    assert found.error == pytest.approx(wanted)
    assert int(found.images.sum()) == 500
    perfect = reliability(torch.eye(3), torch.arange(3))
    assert (perfect.error, perfect.confidence.tolist()) == (0.0, [1.0])


def test_a_normalized_head_ignores_lengths():
    head = LinearHead(torch.randn(3, 5), torch.randn(3), normalized=True)
    x = torch.randn(4, 5)
    torch.testing.assert_close(head.scores(7 * x), head.scores(x))
