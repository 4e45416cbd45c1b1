"""Each operation against torchvision's, one image at a time with the same parameters."""

import pytest
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as tv

from hypersphere.views import ops


@pytest.fixture
def images():
    return torch.rand(6, 3, 32, 32)


def one_by_one(images, operation, *parameters):
    return torch.stack([operation(image, *(p[i].item() for p in parameters)) for i, image in enumerate(images)])


@pytest.mark.parametrize("size", [8, 32, 45])
def test_resized_crop(images, size):
    top, left = torch.tensor([0, 3, 10, 0, 31, 5]), torch.tensor([0, 5, 0, 7, 31, 11])
    height, width = torch.tensor([32, 9, 20, 32, 1, 27]), torch.tensor([32, 12, 32, 3, 1, 20])

    def wanted(image, *box):
        crop = tv.resized_crop(image, *box, [size, size], InterpolationMode.BICUBIC, antialias=True)
        return crop.clamp(0, 1)

    found = ops.resized_crop(images, top, left, height, width, size)
    torch.testing.assert_close(found, one_by_one(images, wanted, top, left, height, width), atol=1e-5, rtol=0)


def test_flip(images):
    flip = torch.tensor([True, False, True, False, True, False])
    whole, none = torch.full((6,), 32), torch.zeros(6)
    found = ops.resized_crop(images, none, none, whole, whole, 32, flip)
    wanted = torch.where(flip[:, None, None, None], tv.horizontal_flip(images), images)
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("ours", "theirs", "low", "high"),
    [
        (ops.brightness, tv.adjust_brightness, 0.6, 1.4),
        (ops.contrast, tv.adjust_contrast, 0.6, 1.4),
        (ops.saturation, tv.adjust_saturation, 0.8, 1.2),
        (ops.hue, tv.adjust_hue, -0.5, 0.5),
    ],
)
def test_colour(images, ours, theirs, low, high):
    images[0] = images[0].mean(0)  # grey: no hue
    images[1, :, :5] = torch.tensor([1.0, 0.0, 0.0]).view(3, 1, 1)
    factor = torch.linspace(low, high, 6)
    torch.testing.assert_close(ours(images, factor), one_by_one(images, theirs, factor), atol=2e-5, rtol=0)
    grey = images[:, :1]
    if ours in (ops.saturation, ops.hue):
        assert torch.equal(ours(grey, factor), grey)
    else:
        torch.testing.assert_close(ours(grey, factor), one_by_one(grey, theirs, factor), atol=1e-5, rtol=0)


def test_jitter_goes_through_each_image_in_its_own_order(images):
    theirs = [tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation, tv.adjust_hue]
    order = torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1], [0, 2, 1, 3], [0, 1, 2, 3]])
    factors = torch.stack([torch.rand(6) + 0.5, torch.rand(6) + 0.5, torch.rand(6) + 0.5, torch.rand(6) - 0.5], 1)
    apply = torch.tensor([True] * 5 + [False])
    wanted = images.clone()
    for i in range(5):
        for which in order[i].tolist():
            wanted[i] = theirs[which](wanted[i], factors[i, which].item())
    torch.testing.assert_close(ops.jitter(images, factors, order, apply), wanted, atol=5e-5, rtol=0)
    assert (ops.jitter(images, factors, order.flip(1), apply) - wanted).abs().max() > 0.01


@pytest.mark.parametrize("kernel", [3, 9, 23])
def test_blur(images, kernel):
    sigma = torch.tensor([0.1, 0.5, 1.0, 1.5, 2.0, 0.0])
    wanted = torch.stack(
        [tv.gaussian_blur(x, [kernel] * 2, [s.item()] * 2) for x, s in zip(images[:5], sigma, strict=False)]
    )
    found = ops.blur(images, sigma, kernel)
    torch.testing.assert_close(found[:5], wanted, atol=1e-5, rtol=0)
    assert torch.equal(found[5], images[5])


def test_greyscale_and_solarize(images):
    apply = torch.tensor([True, False] * 3)
    grey = ops.greyscale(images, apply)
    torch.testing.assert_close(grey[::2], tv.rgb_to_grayscale(images[::2], num_output_channels=3), atol=1e-3, rtol=0)
    solar = ops.solarize(images, apply)
    torch.testing.assert_close(solar[::2], tv.solarize(images[::2], threshold=0.5))
    assert torch.equal(grey[1::2], images[1::2])
    assert torch.equal(solar[1::2], images[1::2])


def test_normalize(images):
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    torch.testing.assert_close(ops.normalize(images, mean, std), tv.normalize(images, list(mean), list(std)))


def test_resize_and_centre_crop():
    images = torch.rand(2, 3, 40, 50)
    wanted = tv.resize(images, [30, 33], InterpolationMode.BICUBIC, antialias=True).clamp(0, 1)
    torch.testing.assert_close(ops.resize(images, 30, 33), wanted, atol=1e-5, rtol=0)
    for side in (28, 31):
        assert torch.equal(ops.centre_crop(images, side), tv.center_crop(images, [side, side]))


def test_images_too_small_for_their_crop_are_told():
    with pytest.raises(ValueError, match="images of 20 × 20 pixels are smaller than the crop of 28 × 28"):
        ops.centre_crop(torch.rand(1, 3, 20, 20), 28)
