"""Fine-tuning against a loop written out, and the few labels counted."""

import copy
import dataclasses
import math
from collections import Counter
from importlib import import_module

import pytest
import torch
from torch import nn

from hypersphere.data import Images, load_data
from hypersphere.data.loader import MemoryLoader
from hypersphere.errors import Diverged
from hypersphere.evaluate import evaluate_encoder, few_labels, fine_tune, linear
from hypersphere.util.random_numbers import PROBE_ORDER, permutation
from hypersphere.views import PIPELINES, Views, evaluation_view

RECIPE = PIPELINES["digits"]
VIEWS = Views(RECIPE, 0)


def shown(*sets):
    return [MemoryLoader(images, VIEWS) for images in sets]


@pytest.fixture(scope="module")
def digits():
    train, test = load_data("digits")
    return train[torch.arange(70)], test[torch.arange(50)]


def small_encoder() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten())


@pytest.fixture
def scores_of(monkeypatch):
    """A probe's scores, of which it tells the accuracy alone."""

    def scores(probe, *given, **options):
        seen = []
        monkeypatch.setattr(import_module(probe.__module__), "accuracy", lambda scores, _: seen.append(scores))
        probe(*given, **options)
        return seen[-1]

    return scores


def written_out(encoder, train, test, *, epochs, batch, lr, head_lr):
    """The same updates, one weight after the other: v ← 0.9 v + g, w ← w − rate · (g + 0.9 v)."""
    encoder, head = copy.deepcopy(encoder).requires_grad_().train(), nn.Linear(72, 10)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    weights = [(w, torch.zeros_like(w), lr) for w in encoder.parameters()]
    weights += [(w, torch.zeros_like(w), head_lr) for w in head.parameters()]
    per_epoch = len(train) // batch
    for step in range(epochs * per_epoch):
        epoch, place = divmod(step, per_epoch)
        order = permutation(len(train), seed=0, epoch=epoch, stream=PROBE_ORDER)
        sample = order[place * batch : (place + 1) * batch]
        logits = head(encoder(VIEWS.probing(train.pixels, sample, epoch)))
        loss = -logits.log_softmax(dim=1)[range(batch), train.labels[sample]].mean()
        gradients = torch.autograd.grad(loss, [w for w, _, _ in weights])
        share = batch / 256 * (1 + math.cos(math.pi * step / (epochs * per_epoch))) / 2
        for (w, v, peak), g in zip(weights, gradients, strict=True):
            v.mul_(0.9).add_(g)
            w.data.sub_(share * peak * (g + 0.9 * v))
    with torch.no_grad():
        return head(encoder.eval()(evaluation_view(test.pixels, RECIPE)))


def test_its_updates_are_those_of_a_loop_written_out(digits, scores_of):
    """Of an encoder that was frozen and in evaluation mode, as a run's is."""
    encoder = small_encoder().requires_grad_(False).eval()
    options = {"epochs": 3, "batch": 16, "lr": 0.5, "head_lr": 2.0}
    ours = scores_of(fine_tune, encoder, *shown(*digits), **options)
    torch.testing.assert_close(ours, written_out(encoder, *digits, **options), rtol=1e-3, atol=1e-4)
    assert ours.std() > 0.1  # it has learnt something


def test_of_an_encoder_that_cannot_learn_it_is_the_linear_probe(digits, scores_of):
    """Whose gradient is a closed form."""
    options = {"epochs": 4, "batch": 16}
    tuned = scores_of(fine_tune, nn.Flatten(), *shown(*digits), head_lr=1.0, **options)
    probed = scores_of(linear, nn.Flatten(), *shown(*digits), lr=1.0, **options)
    torch.testing.assert_close(tuned, probed, rtol=1e-4, atol=1e-5)


def test_the_encoder_itself_stays_as_it_is(digits):
    encoder = small_encoder().requires_grad_(False)
    encoder[1].eval()
    before = copy.deepcopy(encoder.state_dict())
    fine_tune(encoder, *shown(*digits), epochs=2)
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    assert [m.training for m in encoder] == [True, False, True, True, True]
    assert all(w.grad is None and not w.requires_grad for w in encoder.parameters())


def test_it_is_a_function_of_the_seed(digits, scores_of):
    encoder = small_encoder()
    first, again, other = (
        scores_of(fine_tune, encoder, *shown(*digits), epochs=2, batch=16, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert (first != other).all()


def test_it_learns_in_half_precision():
    train, test = load_data("digits")
    found = fine_tune(small_encoder(), *shown(train, test), epochs=5, precision=torch.bfloat16)
    assert found.top1 > 75
    assert found.top5 > 95


@pytest.mark.parametrize("broken", ["rate", "weights", "statistics"])
def test_divergence_is_told_in_a_line(digits, broken):
    encoder, options = small_encoder(), {}
    if broken == "rate":
        options = {"lr": 1e30}
    elif broken == "weights":
        nn.init.constant_(encoder[0].weight, math.nan)
    else:
        encoder[1].running_var.fill_(math.nan)  # of which training hears nothing
    with pytest.raises(Diverged, match=r"^fine-tuning diverged: .* on 70 images; choose other `probes`") as told:
        fine_tune(encoder, *shown(*digits), epochs=3, **options)
    assert "\n" not in str(told.value)


def numbered(per_class: list[int]) -> Images:
    """So many images of each class, mixed, each with its number for a pixel."""
    labels = torch.repeat_interleave(torch.arange(len(per_class)), torch.tensor(per_class))
    labels = labels[torch.randperm(len(labels))]
    return Images(torch.arange(len(labels))[:, None, None, None], labels, tuple(map(str, range(len(per_class)))))


def test_few_labels_are_as_many_of_each_class():
    images = numbered([500] * 10)
    one, ten = (few_labels(images, share) for share in (0.01, 0.1))
    assert Counter(one.labels.tolist()) == dict.fromkeys(range(10), 5)
    assert Counter(ten.labels.tolist()) == dict.fromkeys(range(10), 50)
    assert set(one.pixels.flatten().tolist()) < set(ten.pixels.flatten().tolist())
    assert torch.equal(images.labels[ten.pixels.flatten()], ten.labels)
    assert few_labels(images, 1.0) is images


def test_few_labels_are_a_share_of_those_that_are_there():
    """Of classes that only other images have, there is none."""
    assert len(few_labels(dataclasses.replace(numbered([60, 60]), classes=tuple("abcdefghij")), 0.1)) == 12


def test_few_labels_are_at_least_one_of_each_class():
    few = few_labels(numbered([30, 2, 1, 40]), 0.01)
    assert Counter(few.labels.tolist()) == dict.fromkeys(range(4), 1)


def test_few_labels_are_a_fixed_list():
    """Whatever the seeds: results of different runs are compared."""
    train, _ = load_data("digits")
    everything = Images(torch.arange(len(train))[:, None, None, None], train.labels, train.classes)
    chosen = few_labels(everything, 0.01).pixels.flatten().tolist()
    assert chosen == [12, 27, 55, 121, 350, 378, 643, 773, 877, 1121]


def test_the_suite_says_how_many_labels_there_were():
    train, test = load_data("digits")
    encoder = small_encoder()
    found = evaluate_encoder(encoder, *shown(train, test), ("semi-1",))
    wanted = fine_tune(encoder, *shown(few_labels(train, 0.01), test), epochs=60)
    assert found.keys() == {"semi-1", "sphere"}
    assert found["semi-1"] == {"top1": wanted.top1, "top5": wanted.top5, "labels": 10}
