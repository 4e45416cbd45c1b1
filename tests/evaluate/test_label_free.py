"""What an evaluation records of held-out features without labels."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere.data import load_data
from hypersphere.data.loader import MemoryLoader
from hypersphere.evaluate import evaluate_encoder, features_of, suite
from hypersphere.sphere import alpha_req, cluster_learnability, intrinsic_dimension, lidar, rankme
from hypersphere.sphere import wasserstein_uniformity as wasserstein
from hypersphere.views import PIPELINES, Views, with_small_crops

RECIPE = PIPELINES["digits"]
OF_POINTS = {"uniformity", "effective_rank", "rankme", "alpha_req", "wasserstein_uniformity"}
RECORDED = {"images", *OF_POINTS, "cluster_learnability", "intrinsic_dimension", "lidar", "alignment"}


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


def recorded(encoder, sets, recipe=RECIPE, seed=0):
    return evaluate_encoder(encoder, *(MemoryLoader(some, Views(recipe, seed)) for some in sets), ("knn",))["sphere"]


def test_measures_are_of_the_held_out_features(digits):
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 16))
    found = recorded(encoder, digits)
    assert found.keys() == RECORDED
    features = features_of(MemoryLoader(digits[1], Views(RECIPE, 0)), encoder)[0]
    measures = {"rankme": rankme, "alpha_req": alpha_req, "wasserstein_uniformity": wasserstein}
    measures |= {"cluster_learnability": cluster_learnability, "intrinsic_dimension": intrinsic_dimension}
    measures |= {"uniformity": hs.uniformity, "effective_rank": hs.effective_rank}
    for name, measure in measures.items():
        assert found[name] == pytest.approx(float(measure(features)), rel=1e-5), name
    assert all(type(value) is float for name, value in found.items() if name != "images")


@pytest.mark.parametrize(("most", "small_crops"), [(1000, 0), (50, 0), (50, 3)])
def test_lidar_and_alignment_are_of_ten_training_views(digits, monkeypatch, most, small_crops):
    """Of images chosen evenly; the first two views are those that training begins with. Small crops do not count."""
    monkeypatch.setattr(suite, "VIEWED", most)
    different = replace(RECIPE, augmentations=(RECIPE.augmentations[0], replace(RECIPE.augmentations[1], crop=(1, 1))))
    recipe = with_small_crops(different, small_crops)
    encoder, (_, held_out) = nn.Flatten(), digits
    found = recorded(encoder, digits, recipe, seed=7)
    chosen = held_out.pixels[torch.linspace(0, 299, min(most, 300)).long()]
    many = Views(replace(recipe, augmentations=different.augmentations * 5), 7)
    views = many.training(chosen, torch.arange(len(chosen)), 0)
    assert len(views) == 10
    assert found["lidar"] == pytest.approx(float(lidar(torch.stack([encoder(v) for v in views], dim=1))), rel=1e-5)
    first = Views(recipe, 7).training(chosen, torch.arange(len(chosen)), 0)[:2]
    assert found["alignment"] == pytest.approx(float(hs.alignment(*map(encoder, first))), rel=1e-5)
    assert found == recorded(encoder, digits, recipe, seed=7)
    assert found["lidar"] != recorded(encoder, digits, recipe, seed=8)["lidar"]


def test_views_are_seen_by_the_frozen_encoder(digits):
    encoder = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Dropout(0.5)).train()
    before = encoder[1].running_mean.clone()
    assert recorded(encoder, digits) == recorded(encoder, digits)
    assert torch.equal(encoder[1].running_mean, before)
    assert encoder[2].training


class DeadInDarkness(nn.Flatten):
    """Zero for each view of which the first pixel is dark."""

    def forward(self, x):
        return super().forward(x) * (x[:, :1, 0, 0] > self.least)


def test_images_of_which_a_view_is_zero_do_not_count(digits):
    encoder = DeadInDarkness()
    pixels = digits[1].pixels.clone()
    pixels[:200] = (20 + pixels[:200].float() * 0.9).byte()  # not dark, nor is any view of some of them
    pixels[200:, :, :, :4] = 0
    encoder.least = float((10 / 255 - RECIPE.mean[0]) / RECIPE.std[0])
    sets = digits[0], replace(digits[1], pixels=pixels)
    found = recorded(encoder, sets)
    assert found["zero_rows"] == 100
    views = MemoryLoader(sets[1], Views(RECIPE, 0)).augmented(10, torch.float32)
    features = torch.cat([torch.stack([encoder(view) for view in part], dim=1) for part in views])
    there = features[(features != 0).any(2).all(1)]
    assert 10 < len(there) < 200
    assert found["lidar"] == pytest.approx(float(lidar(there)))
    assert found["alignment"] == pytest.approx(float(hs.alignment(there[:, 0], there[:, 1])))


class Collapsed(nn.Flatten):
    def forward(self, x):
        return torch.ones_like(super().forward(x))


@pytest.mark.parametrize("encoder", [Collapsed(), nn.AvgPool2d(8)], ids=["collapsed", "one dimension"])
@pytest.mark.parametrize("images", [2, 3, 300])
def test_degenerate_features_are_recorded(digits, images, encoder):
    few = digits[1][torch.arange(images)]
    found = recorded(nn.Sequential(encoder, nn.Flatten()), (digits[0], few))
    assert found.keys() == RECORDED
    assert not any(map(math.isinf, found.values()))
    assert found["lidar"] == pytest.approx(1, abs=1e-3)
