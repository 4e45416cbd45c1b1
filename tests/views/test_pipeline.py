import math

import pytest
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import RandomResizedCrop
from torchvision.transforms.v2 import functional as tv

from hypersphere.errors import UserError
from hypersphere.util.random_numbers import Key
from hypersphere.views import PIPELINES, ViewPipeline, Views, evaluation_view, with_small_crops
from hypersphere.views.pipeline import Augmentation, draw

SAMPLES = torch.arange(20_000)


def drawn(how, shape=(32, 32), sample=SAMPLES, view=0, **key):
    return draw(how, shape, sample, Key(**{"seed": 0, "epoch": 0, **key}), view=view)


def test_a_view_is_a_function_of_seed_epoch_sample_and_view():
    pixels = torch.randint(0, 256, (1000, 3, 32, 32), dtype=torch.uint8)
    sample = torch.tensor([5, 900, 3, 999, 17, 0, 1, 2])
    first, second = Views(PIPELINES["cifar10"], seed=1).training(pixels, sample, epoch=4)
    again, _ = Views(PIPELINES["cifar10"], seed=1).training(pixels, sample[2:3], epoch=torch.tensor(4))
    torch.testing.assert_close(first[2:3], again)  # whatever else is in the batch
    assert (first != second).any(dim=(1, 2, 3)).all()
    for seed, epoch in ((2, 4), (1, 5)):
        other, _ = Views(PIPELINES["cifar10"], seed).training(pixels, sample, epoch)
        assert (first != other).any(dim=(1, 2, 3)).all()


def test_boxes_are_distributed_as_torchvision_draws_them():
    how = Augmentation()
    ours = drawn(how)
    torch.manual_seed(1)
    crop = RandomResizedCrop(32, scale=how.crop, ratio=how.ratio)
    image = torch.zeros(3, 32, 32)
    theirs = [crop.make_params([image]) for _ in range(4000)]
    for name in ("top", "left", "height", "width"):
        wanted = torch.tensor([float(box[name]) for box in theirs])
        found = getattr(ours, name)
        error = 4 * wanted.std() / len(theirs) ** 0.5
        assert (found.mean() - wanted.mean()).abs() < error, name
        assert found.std().item() == pytest.approx(wanted.std().item(), rel=0.06), name
    assert (ours.top + ours.height <= 32).all()
    assert (ours.left + ours.width <= 32).all()
    assert (ours.height >= 1).all()


def test_a_box_that_never_fits_is_the_middle_of_the_image():
    d = drawn(Augmentation(crop=(1.0, 1.0), ratio=(0.75, 4 / 3)), shape=(10, 40), sample=torch.arange(5))
    assert d.height.tolist() == [10] * 5
    assert d.width.tolist() == [13] * 5
    assert d.left.tolist() == [13] * 5


def test_shares_and_ranges():
    d = drawn(Augmentation(blur=0.5, solarize=0.2))
    late = ((d.late.grey, 0.2), (d.late.solarize, 0.2))
    for flags, share in ((d.flip, 0.5), (d.jitter, 0.8), (d.sigma > 0, 0.5), *late):
        assert flags.float().mean().item() == pytest.approx(share, abs=0.015)
    low, high = d.factors.amin(0), d.factors.amax(0)
    torch.testing.assert_close(low, torch.tensor([0.6, 0.6, 0.8, -0.1]), atol=1e-2, rtol=0)
    torch.testing.assert_close(high, torch.tensor([1.4, 1.4, 1.2, 0.1]), atol=1e-2, rtol=0)
    assert torch.equal(d.order.sort(1).values, torch.arange(4).expand_as(d.order))
    counts = d.order.unique(dim=0, return_counts=True)[1]
    assert len(counts) == 24
    assert (counts / len(SAMPLES) - 1 / 24).abs().max() < 0.01
    blurred = d.sigma[d.sigma > 0]
    assert 0.1 <= blurred.min() < 0.11
    assert 1.99 < blurred.max() <= 2.0


def test_digits_are_never_flipped():
    assert not drawn(PIPELINES["digits"].augmentations[0]).flip.any()
    assert not drawn(PIPELINES["digits"].probe).flip.any()


def test_imagenet_views_differ_as_in_byol():
    one, two = PIPELINES["imagenet"].augmentations
    assert (one.blur, one.solarize, two.blur, two.solarize) == (1.0, 0.0, 0.1, 0.2)


@pytest.mark.parametrize(
    ("name", "shape", "resize", "crop", "size"),
    [
        ("cifar10", (32, 32), None, 28, 32),
        ("stl10", (96, 96), 64, 56, 64),
        ("imagenet", (300, 400), 256, 224, 224),
        ("imagenet", (338, 500), 256, 224, 224),
    ],
)
def test_evaluation_crops(name, shape, resize, crop, size):
    images = torch.randint(0, 256, (2, 3, *shape), dtype=torch.uint8)
    recipe = PIPELINES[name]
    x = images.float() / 255
    if resize:
        x = tv.resize(x, [resize], InterpolationMode.BICUBIC, antialias=True).clamp(0, 1)
    x = tv.center_crop(x, [crop, crop])
    x = tv.resize(x, [size, size], InterpolationMode.BICUBIC, antialias=True).clamp(0, 1)
    wanted = tv.normalize(x, list(recipe.mean), list(recipe.std))
    torch.testing.assert_close(evaluation_view(images, recipe), wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", PIPELINES)
def test_every_recipe_gives_finite_views_of_its_size(name):
    recipe = PIPELINES[name]
    shape = {"digits": (1, 8, 8), "imagenet": (3, 240, 250), "stl10": (3, 96, 96)}.get(name, (3, 32, 32))
    images = torch.randint(0, 256, (3, *shape), dtype=torch.uint8)
    views = Views(recipe, 0)
    sample, half = torch.arange(3), torch.float16
    for view in (*views.training(images, sample, 0), views.probing(images, sample, 0)):
        assert view.shape == (3, shape[0], recipe.size, recipe.size)
        assert view.isfinite().all()
    assert views.probing(images, sample, 0, half).dtype == half
    assert math.prod(evaluation_view(images, recipe).shape) == 3 * shape[0] * recipe.size**2


@pytest.mark.parametrize("name", ["cifar10", "digits"])
def test_small_crops_come_after_two_views_that_stay_as_they_are(name):
    recipe, channels = PIPELINES[name], len(PIPELINES[name].mean)
    images = torch.randint(0, 256, (5, channels, recipe.size, recipe.size), dtype=torch.uint8)
    sample = torch.tensor([4, 0, 2])
    wanted = Views(recipe, 1).training(images, sample, 3)
    one, other, *small = Views(with_small_crops(recipe, 3), 1).training(images, sample, 3)
    assert torch.equal(one, wanted[0])
    assert torch.equal(other, wanted[1])
    assert [view.shape for view in small] == [(3, channels, recipe.size // 2, recipe.size // 2)] * 3
    assert not torch.equal(small[0], small[1])


def test_small_crops_show_less_of_the_image():
    large, _, small = with_small_crops(PIPELINES["cifar10"], 1).augmentations
    assert (small.crop, small.size) == ((0.04, 0.25), 16)
    areas = [(d.height * d.width).mean().item() / 1024 for d in (drawn(large), drawn(small))]
    assert areas[0] == pytest.approx(0.52, abs=0.03)
    assert areas[1] == pytest.approx(0.145, abs=0.01)


def test_a_config_says_how_many_small_crops_there_are():
    from hypersphere.config import recipe
    from hypersphere.runs.build import view_pipeline

    config = recipe("swav", "cifar10", small_crops=4, crop_min=0.2)
    assert [how.size for how in view_pipeline(config).augmentations] == [None, None, 16, 16, 16, 16]
    assert view_pipeline(config).augmentations[2].crop == (0.1, 0.25)
    told = r"`small_crops` is not an option of byol \(swav, dino, deepcluster, obow have it\)"
    with pytest.raises(UserError, match=told):
        recipe("byol", "cifar10", small_crops=4)
    with pytest.raises(UserError, match="`small_crops` must be between 0 and 64"):
        config.replace(small_crops=-1)
    for side, pixels in ((0.02, 0), (0.1, 3)):
        with pytest.raises(UserError, match=rf"`small_side` {side} makes views of {pixels} of 32 pixels .* 4 or more"):
            view_pipeline(config.replace(small_side=side))
        assert len(view_pipeline(config.replace(small_side=side, small_crops=0)).augmentations) == 2
    assert view_pipeline(config.replace(small_side=0.125)).augmentations[2].size == 4


def test_small_crops_are_as_large_as_blur_needs_them():
    large = PIPELINES["imagenet"]
    with pytest.raises(UserError, match="makes views of 11 of 224 pixels a side: they must have 12 or more"):
        with_small_crops(large, 1, 0.05)
    least = with_small_crops(large, 1, 0.054)
    assert least.augmentations[-1].blur == 0.5 < large.augmentations[0].blur
    images = torch.randint(0, 256, (8, 3, 40, 40), dtype=torch.uint8)
    assert Views(least, 0).training(images, torch.arange(8), 0)[2].shape == (8, 3, 12, 12)


@pytest.mark.parametrize(
    "images",
    [
        torch.rand(4, 3, 32, 32),
        torch.zeros(4, 3, 32, 32, dtype=torch.long),
        torch.zeros(3, 32, 32, dtype=torch.uint8),
        torch.zeros(4, 32, 32, 3, dtype=torch.uint8),
        torch.zeros(4, 1, 32, 32, dtype=torch.uint8),  # where the recipe has three colours
    ],
)
def test_images_that_are_no_bytes_by_channel_are_refused(images):
    views = Views(PIPELINES["cifar10"], 0)
    for use in (
        lambda: views.training(images, torch.arange(2), 0),
        lambda: views.probing(images, torch.arange(2), 0),
        lambda: evaluation_view(images, PIPELINES["cifar10"]),
    ):
        with pytest.raises(UserError, match=r"^images must be bytes \(uint8, 0 to 255\) of shape N × 3 × H × W, got "):
            use()


def test_recipes_that_cannot_be():
    for crop in ((2.0, 3.0), (0.5, 0.2), (0.0, 1.0), (0.5,)):
        with pytest.raises(UserError, match="`crop` must be two shares, the smaller first, above 0 and at most 1"):
            Augmentation(crop=crop)
    for mean, std in (((0.5,) * 3, (0.5,)), ((), ())):
        with pytest.raises(UserError, match="`mean` and `std` must have a number for each channel"):
            ViewPipeline(32, mean, std, (), Augmentation())
    for wrong in ({"crop": (2.0, 3.0)}, {"crop": 0}, {"resize": 36.5}):
        with pytest.raises(UserError, match="must be a whole number of pixels"):
            ViewPipeline(32, (0.5,), (0.5,), (), Augmentation(), **wrong)
