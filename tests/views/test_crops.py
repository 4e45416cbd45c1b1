"""Views made in two parts against those made at once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from hypersphere.util.random_numbers import Key
from hypersphere.views import PIPELINES, Views, with_small_crops
from hypersphere.views.crops import crop_draws, crops, decode_side, finished, middle, one_box
from hypersphere.views.pipeline import box_of

RECIPE = PIPELINES["imagenet"]


@pytest.fixture(scope="module")
def photograph():
    """Smooth colours, 300 × 240."""
    noise = np.random.default_rng(0).integers(0, 255, (12, 15, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((300, 240), Image.Resampling.BICUBIC)


def test_they_are_the_views_of_the_reference(photograph):
    pixels = torch.from_numpy(np.array(photograph)).permute(2, 0, 1)[None].expand(6, -1, -1, -1)
    sample = torch.arange(6)
    wanted = Views(RECIPE, 5).training(pixels, sample, 3)
    numbers = crop_draws(RECIPE, sample, Key(5, 3))
    cropped = torch.from_numpy(np.stack([crops(pixels[0], n, RECIPE) for n in numbers]))
    assert cropped.dtype == torch.uint8
    found = finished(RECIPE, cropped, sample, Key(5, 3), torch.float32)
    assert len(found) == len(wanted) == 2
    for ours, reference in zip(found, wanted, strict=True):
        gap = (ours - reference).abs()
        assert gap.mean() < 0.01  # a byte is 0.017 in normalized units
        assert gap.quantile(0.999) < 0.1


def test_draws_are_of_seed_and_epoch():
    sample = torch.tensor([4, 9])
    first = crop_draws(RECIPE, sample, Key(0, 0))
    assert first.shape == (2, 2, 22)
    assert not (first == crop_draws(RECIPE, sample, Key(0, 1))).any()
    assert not (first == crop_draws(RECIPE, sample, Key(1, 0))).any()
    np.testing.assert_array_equal(crop_draws(RECIPE, sample[1:], Key(0, 0))[0], first[1])


def test_the_middle_is_the_middle(photograph):
    found = middle(photograph, 60)
    wanted = photograph.crop((30, 0, 270, 240)).resize((60, 60), Image.Resampling.BICUBIC)
    gap = np.abs(found.astype(int) - np.asarray(wanted).transpose(2, 0, 1))
    assert gap.max() <= 3  # at the edge, where the crop has no neighbours
    assert gap[:, 2:-2, 2:-2].max() == 0


def test_the_smallest_crop_is_not_enlarged():
    side = decode_side(RECIPE)
    assert (0.08 * side * side * 3 / 4) ** 0.5 == pytest.approx(224, rel=0.01)


def test_small_crops_are_the_views_of_the_reference_too(photograph):
    """An image made of several sizes of views, from the same draws."""
    recipe = with_small_crops(RECIPE, 2)
    pixels = torch.from_numpy(np.array(photograph)).permute(2, 0, 1)[None].expand(4, -1, -1, -1)
    sample = torch.arange(4)
    numbers = crop_draws(recipe, sample, Key(5, 3))
    cropped = torch.from_numpy(np.stack([crops(pixels[0], n, recipe) for n in numbers]))
    found = finished(recipe, cropped, sample, Key(5, 3), torch.float32)
    assert [view.shape[2] for view in found] == [224, 224, 112, 112]
    for ours, reference in zip(found, Views(recipe, 5).training(pixels, sample, 3), strict=True):
        assert (ours - reference).abs().mean() < 0.01


def test_the_side_that_is_decoded_is_enough_for_every_size():
    large = replace(RECIPE.augmentations[0], size=300)
    recipe = replace(RECIPE, augmentations=(*RECIPE.augmentations, large))
    assert (0.08 * decode_side(recipe) ** 2 * 3 / 4) ** 0.5 == pytest.approx(300, rel=0.01)
    assert decode_side(with_small_crops(RECIPE, 2)) == decode_side(RECIPE)


def test_the_box_of_one_image_is_that_of_a_batch():
    how = RECIPE.augmentations[0]
    numbers = crop_draws(RECIPE, torch.arange(500), Key(0, 0))[:, 0]
    for height, width in ((375, 500), (20, 28), (3000, 200)):  # the last is too narrow for most
        wanted = torch.stack(box_of(torch.from_numpy(numbers), how, height, width), dim=1).long().tolist()
        assert [list(one_box(u, how, height, width)) for u in numbers] == wanted
