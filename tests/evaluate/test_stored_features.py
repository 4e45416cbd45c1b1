"""Probes of stored features find the same however these are given, and say what is wrong with them."""

import math
import re

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hypersphere.data import load_data
from hypersphere.evaluate import KnnMonitor, accuracy, few_shot, knn, linear_cached
from hypersphere.views import PIPELINES


def found_in(sets):
    return knn(*sets, k=20), few_shot(*sets, draws=3), linear_cached(*sets)


@pytest.fixture(scope="module")
def sets():
    """Features, labels, queries, truth: bytes, which numbers of any kind hold exactly."""
    some = [images[torch.arange(300)] for images in load_data("digits", "test")]
    return [x for images in some for x in (images.pixels.flatten(1).float(), images.labels)]


@pytest.fixture(scope="module")
def wanted(sets):
    return found_in(sets)


@pytest.mark.parametrize(
    ("points", "numbers"),
    [
        (Tensor.double, Tensor.int),
        (Tensor.half, Tensor.byte),
        (Tensor.bfloat16, lambda y: y[:, None]),  # as MedMNIST has them
        (Tensor.byte, lambda y: torch.stack([y, y], 1)[:, 0]),
        (lambda x: x.clone().requires_grad_(), lambda y: y.numpy()[:, None].astype(np.uint16)),
        (lambda x: x.numpy().astype(np.uint8), lambda y: y.numpy().astype(np.uint8)),
        (lambda x: x.flip(1).numpy()[:, ::-1], lambda y: y.numpy().astype(">i4")),
        (lambda x: np.frombuffer(x.numpy().tobytes(), np.float32).reshape(-1, 64), Tensor.numpy),  # read-only
        (lambda x: x.numpy().astype(">f8"), Tensor.long),
    ],
)
def test_probes_take_tensors_and_arrays_of_any_kind(sets, wanted, points, numbers):
    features, labels, queries, truth = sets
    assert found_in((points(features), numbers(labels), points(queries), numbers(truth))) == wanted


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_probes_find_the_same_in_any_mode(sets, wanted, mode):
    with mode():
        assert found_in([x.clone() for x in sets]) == wanted


def test_what_has_no_label_is_left_out(sets, wanted):
    features, labels, queries, truth = sets
    bad, unknown = torch.full((7, 64), torch.nan), torch.full((7,), -1)
    more = [torch.cat(two) for two in ((bad, features), (unknown, labels), (queries, bad), (truth, unknown))]
    assert found_in(more) == wanted


def test_what_is_of_a_class_without_example_is_wrong(sets):
    features, labels, queries, truth = sets
    there, asked = labels != 4, truth != 4
    without = found_in((features[there], labels[there], queries[asked], truth[asked]))
    found = found_in((features[there], 10**12 * labels[there], queries, 10**12 * truth))
    for ours, theirs in zip(found, without, strict=True):
        assert ours[0] == pytest.approx(theirs[0] * float(asked.double().mean()))


@pytest.mark.parametrize("probe", [knn, few_shot, linear_cached])
@pytest.mark.parametrize(
    ("told", "change"),
    [
        ("must be integers, one for each of the 20 {0}, got torch.int64 of shape (19,)", lambda x, y: (x, y[:19])),
        ("got torch.int64 of shape (1,)", lambda x, y: (x, y[:1])),
        ("got torch.int64 of shape (20, 2)", lambda x, y: (x, torch.stack([y, y], 1))),
        ("got torch.float32 of shape (20,)", lambda x, y: (x, y.float())),
        ("{0} must have shape (N, D), got (20, 4, 16)", lambda x, y: (x.view(20, 4, 16), y)),
        ("{0} must be finite: 1 of 20 have NaN or infinity", lambda x, y: (torch.cat([x[:19], x[:1] / 0]), y)),
        ("{0} must be finite: 20 of 20 have NaN or infinity", lambda x, y: (x.double() + 1e300, y)),
        ("queries must have", lambda x, y: (x[:, :63], y)),
        (
            "{1} must have a class, which is at least 0, for some of the 20 {0}",
            lambda x, y: (x, torch.full_like(y, -1)),
        ),
        ("{1} must have a class, which is at least 0, for some of the 0 {0}", lambda x, y: (x[:0], y[:0])),
        ("{0} must be a tensor or array of numbers, got list", lambda x, y: (x.tolist(), y)),
        ("{1} must be a tensor or array of numbers, got <U1", lambda x, y: (x, y.numpy().astype("U1"))),
    ],
)
def test_what_is_wrong_is_told(sets, probe, told, change):
    features, labels, queries, truth = (x[:20] for x in sets)
    for names, wrong in (
        (("features", "labels"), (*change(features, labels), queries, truth)),
        (("queries", "truth"), (features, labels, *change(queries, truth))),
    ):
        with pytest.raises((ValueError, TypeError), match=re.escape(told.format(*names))) as error:
            probe(*wrong)
        assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("probe", "options", "told"),
    [
        (knn, {"k": 0}, "k must be at least 1, got 0"),
        (knn, {"temperature": 0}, "temperature must be positive, got 0"),
        (knn, {"temperature": math.nan}, "temperature must be positive, got nan"),
        (few_shot, {"shots": 0}, "at least 1, got 0 and 50"),
        (few_shot, {"draws": 0}, "at least 1, got 1 and 0"),
        (linear_cached, {"decay": -1.0}, "decay must be at least 0, got -1.0"),
    ],
)
def test_options_that_mean_nothing_are_told(sets, probe, options, told):
    with pytest.raises(ValueError, match=told):
        probe(*sets, **options)


@pytest.mark.parametrize("shape", [(3, 1), (1,), (4,), ()])
def test_accuracy_wants_a_label_for_each_row(shape):
    with pytest.raises(ValueError, match=re.escape(f"got shapes (3, 6) and {shape}")):
        accuracy(torch.rand(3, 6), torch.zeros(shape, dtype=torch.long))
    with pytest.raises(ValueError, match="at least one row"):
        accuracy(torch.rand(0, 6), torch.zeros(0, dtype=torch.long))


def test_the_monitor_of_a_run_that_diverges_does_not_end_it():
    train, test = load_data("digits")
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    nn.init.constant_(encoder[1].bias, math.nan)
    assert math.isnan(KnnMonitor(1, train, test, PIPELINES["digits"], 20, 0.1)(encoder)["knn"])
