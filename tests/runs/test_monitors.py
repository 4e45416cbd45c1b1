"""What is measured while a run learns, of images that are not shown to the encoder all at once."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from hypersphere import diagnose
from hypersphere.config import recipe
from hypersphere.data import Dataset, DataSpec, Images, load_data
from hypersphere.runs.build import build_method, view_pipeline
from hypersphere.runs.machine import training_execution
from hypersphere.runs.monitors import _watched, monitors_of
from hypersphere.runs.recipes import recipe_for
from hypersphere.sphere import alignment, effective_rank, uniformity
from hypersphere.views import Views, evaluation_view
from tests.networks import SMALL_ENCODER


@pytest.mark.parametrize(("data", "side", "most"), [("stl10", 96, 227), ("cifar10", 32, 240)])
def test_monitors_see_large_images_in_pieces(data, side, most):
    config = recipe("byol", data, encoder="hypersphere/digits", hidden=8, projection=4, device="cpu")
    pixels = torch.randint(0, 256, (240, 3, side, side), dtype=torch.uint8)
    images = Images(pixels, torch.arange(240) % 2, ("even", "odd"))
    monitors = monitors_of(config, build_method(config, channels=3), images, images, training_execution(config))
    encoder, seen = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten()), []
    encoder[0].register_forward_hook(lambda module, given, found: seen.append(len(found)))
    energies, spread, knn = (monitor(encoder) for monitor in monitors)
    assert (max(seen), sum(seen)) == (most, 5 * 240)
    pair = Views(view_pipeline(config), config.seed).training(pixels, torch.arange(240), 0)
    features, one, other = map(encoder, (evaluation_view(pixels, view_pipeline(config)), *pair))
    assert energies["uniformity_of_features"] == pytest.approx(float(uniformity(features)), rel=1e-4)
    assert knn["uniformity_of_features"] == pytest.approx(float(uniformity(features)), rel=1e-4)
    assert spread["alignment"] == pytest.approx(float(alignment(one, other)), rel=1e-4)
    assert spread["effective_rank"] == pytest.approx(float(effective_rank(one)), rel=1e-4)


def test_of_sorted_arrays_all_classes_are_watched_and_diagnosed(tmp_path):
    """Each a shade of its own, by which the images are sorted."""
    shades = np.repeat(np.arange(5, dtype=np.uint8) * 50, 500)
    pixels = np.broadcast_to(shades[:, None, None], (2500, 8, 8))
    np.savez(tmp_path / "a.npz", train_images=pixels, train_labels=shades, val_images=pixels, val_labels=shades)
    config = recipe_for("byol", str(tmp_path / "a.npz"), encoder=SMALL_ENCODER, hidden=8, projection=4, device="cpu")
    images, seen = Dataset.resolve(config).split("validation"), []

    class Shade(nn.Module):
        def forward(self, x):
            seen.extend(x[:, :, 0, 0].mean(1).tolist())
            return x.flatten(1)

    energies, *_ = monitors_of(config, build_method(config, channels=1), *images, training_execution(config))
    energies(Shade())
    assert len(seen) == 1024
    assert len(set(seen)) == 5
    seen.clear()
    diagnose(Shade(), data=config.data, images=100, size=16)
    assert len({round(value, 4) for value in seen}) >= 5


def test_one_image_is_too_few_to_watch():
    config = recipe("byol", "digits", hidden=8, projection=4, device="cpu")
    method, (learnt, held_out) = build_method(config, channels=1), load_data("digits")
    for count, monitors in ((1, 0), (2, 3)):
        few = held_out[torch.arange(count)]
        found = monitors_of(config, method, learnt, few, training_execution(config))
        assert len(found) == monitors
        assert all(math.isfinite(value) for monitor in found for value in monitor(method.encoder).values())


@pytest.mark.parametrize(("counts", "watched"), [((4, 4, 4, 5), 3), ((50, 50, 5), 21), ((3, 1, 1, 1), 1)])
def test_however_few_images_a_class_has_a_fifth_is_watched(counts, watched):
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    images = Images(torch.zeros(len(labels), 1, 2, 2, dtype=torch.uint8), labels, tuple(map(str, range(len(counts)))))
    rest, some = _watched(Dataset.resolve(DataSpec("own.npz")), images, images)
    assert (len(some), len(rest)) == (watched, len(labels) - watched)
