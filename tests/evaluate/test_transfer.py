"""An encoder on another data set, its images prepared by torchvision and Pillow for comparison."""

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.neighbors import KNeighborsClassifier
from torch import nn
from torchvision.transforms.v2 import functional as tv

import hypersphere as hs
from hypersphere.config import recipe
from hypersphere.data import SOURCES, Images
from hypersphere.data.named_datasets import Source
from hypersphere.evaluate import transfer_views
from hypersphere.runs.run import evaluate_on
from hypersphere.views import PIPELINES, evaluation_view


def colourful(count: int, classes: int = 7) -> Images:
    """Images of as many coloured patterns as there are classes, with noise, in a frame of any grey."""
    labels = torch.arange(count) % classes
    patterns = torch.rand(classes, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    colours = nn.functional.interpolate(patterns, scale_factor=7)[labels]
    pixels = torch.rand(count, 1, 1, 1).expand(-1, 3, 32, 32).clone()
    pixels[..., 2:-2, 2:-2] = (0.4 + 0.1 * colours + 0.5 * torch.randn(count, 3, 28, 28)).clamp(0, 1)
    return Images((255 * pixels).to(torch.uint8), labels, tuple("abcdefg"[:classes]))


@pytest.fixture
def colours(monkeypatch):
    """In place of CIFAR-10."""
    sets = colourful(140), colourful(70)
    monkeypatch.setitem(SOURCES, "cifar10", Source(lambda root: sets, 5, "colours", neighbours=9))
    return sets


def test_colour_is_made_grey_as_pillow_does():
    images = colourful(5)
    ours = images.in_channels(1)
    for picture, found in zip(images.pixels, ours.pixels, strict=True):
        wanted = np.asarray(Image.fromarray(picture.permute(1, 2, 0).numpy()).convert("L"))
        assert np.abs(found[0].numpy().astype(int) - wanted).max() <= 1
    assert (ours.pixels.dtype, ours.pixels.shape) == (torch.uint8, (5, 1, 32, 32))


def test_grey_is_made_colour_by_repeating_it():
    grey = colourful(5).in_channels(1)
    colour = grey.in_channels(3)
    assert torch.equal(colour.pixels, grey.pixels.repeat(1, 3, 1, 1))
    assert colour.pixels.is_contiguous()
    assert colour.in_channels(3) is colour


def test_the_old_name_warns():
    images = colourful(5)
    with pytest.warns(DeprecationWarning, match=r"is now Images\.in_channels"):
        found = hs.evaluate.in_channels(images, 1)
    assert torch.equal(found.pixels, images.in_channels(1).pixels)


def prepared(pixels: torch.Tensor) -> torch.Tensor:
    """CIFAR images for an encoder of digits: grey, their middle 28 pixels made 8, normalized as digits are."""
    pictures = tv.center_crop(tv.rgb_to_grayscale(pixels.float() / 255), 28)
    small = tv.resize(pictures, [8, 8], interpolation=tv.InterpolationMode.BICUBIC, antialias=True)
    return tv.normalize(small, PIPELINES["digits"].mean, PIPELINES["digits"].std)


def test_images_are_as_the_encoder_knows_them():
    images = colourful(20)
    theirs = transfer_views(PIPELINES["cifar10"], PIPELINES["digits"])
    ours = evaluation_view(images.in_channels(1).pixels, theirs)
    torch.testing.assert_close(ours, prepared(images.pixels), rtol=0, atol=0.01)  # half a level of grey is 0.005


def test_probes_of_a_transfer_are_of_the_other_images(colours):
    found = evaluate_on(nn.Flatten(), recipe("byol", "digits"), ("knn",), "test", data="cifar10")
    train, test = (prepared(images.pixels).flatten(1).double() for images in colours)
    theirs = KNeighborsClassifier(9, metric="cosine", weights=lambda d: np.exp((1 - d) / 0.1))
    wanted = 100 * theirs.fit(train, colours[0].labels).score(test, colours[1].labels)
    assert found["knn"]["k"] == 9
    assert found["knn"]["top1"] == pytest.approx(wanted, abs=1.5)  # one of 70
    assert 20 < wanted < 100
    distances = torch.pdist(nn.functional.normalize(test))
    assert found["sphere"]["uniformity"] == pytest.approx(float((-2 * distances**2).exp().mean().log()), abs=0.01)
