"""Views of images of different sizes, by kernels, against the reference; in Triton's interpreter if there is no GPU."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from hypersphere import kernels
from hypersphere.kernels import packed as kernel
from hypersphere.util.random_numbers import PROBE, VIEWS, Key
from hypersphere.views import ViewPipeline, dispatch, packed
from hypersphere.views.packed import PackedImages
from tests.kernels.augmentations import EVERYTHING, NOTHING

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CROP = replace(NOTHING, crop=(0.08, 1.0), ratio=(3 / 4, 4 / 3))
SIZES = [(40, 23), (9, 31), (13, 13), (50, 2), (3, 64), (17, 20)]  # taller, wider and smaller than the view


def of_sizes(sizes):
    parts = [torch.randint(0, 256, (3 * height * width,), dtype=torch.uint8) for height, width in sizes]
    ends = torch.tensor([0, *map(len, parts)]).cumsum(0)
    heights, widths = torch.tensor(sizes, dtype=torch.int32).T.contiguous().to(DEVICE)
    return PackedImages(torch.cat(parts).to(DEVICE), ends[:-1].to(DEVICE), heights, widths)


def both(how, images, sample, size=13, stream=VIEWS, dtype=torch.float32, view=1):
    recipe = ViewPipeline(size, (0.4,) * 3, (0.25,) * 3, (how,), how)
    given = (how, recipe, images, sample, Key(5, 3, stream), dtype)
    return [make(*given, view=view) for make in (packed.fused, packed.reference)]


@pytest.mark.parametrize("stream", [VIEWS, PROBE])
@pytest.mark.parametrize("how", [NOTHING, CROP, EVERYTHING], ids=["nothing", "crop", "everything"])
def test_images_of_different_sizes(how, stream):
    found, wanted = both(how, of_sizes(SIZES), torch.arange(len(SIZES), device=DEVICE), stream=stream)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


def test_boxes_that_never_fit_take_the_largest_central_one():
    """Rounded as Python does: halves to the even number."""
    how = replace(NOTHING, crop=(1.0, 1.0), ratio=(2 / 3, 3 / 2))
    images = of_sizes([(3, 40), (5, 40), (40, 3), (40, 5), (7, 60)])
    found, wanted = both(how, images, torch.arange(5, device=DEVICE))
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


def test_views_of_many_tiles(monkeypatch):
    monkeypatch.setattr(kernel, "TILE", 128)
    found, wanted = both(CROP, of_sizes(SIZES[:3]), torch.arange(3, device=DEVICE), size=30)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


def test_chosen_images_keep_their_own_random_numbers():
    images, sample = of_sizes(SIZES), torch.tensor([4, 0, 4], device=DEVICE)
    found, wanted = both(CROP, images.chosen(sample), sample)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)
    whole, _ = both(CROP, images, torch.arange(len(SIZES), device=DEVICE))
    assert torch.equal(found, whole[sample])


def test_large_images_of_one_size_agree_with_their_reference(monkeypatch):
    """Images in memory that are too large for the kernel of small ones."""
    recipe = ViewPipeline(13, (0.4,) * 3, (0.25,) * 3, (EVERYTHING, CROP), CROP)
    pixels = torch.randint(0, 256, (7, 3, 20, 31), dtype=torch.uint8, device=DEVICE)
    given = (recipe.augmentations, recipe, pixels, torch.tensor([6, 2, 3], device=DEVICE), Key(1, 2, VIEWS))
    monkeypatch.setattr(kernels, "usable", lambda x: True)
    monkeypatch.setattr(dispatch, "fusible", lambda *_: False)
    for found, wanted in zip(
        dispatch._views(*given, torch.float32), dispatch.reference(*given, torch.float32), strict=True
    ):
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


@pytest.mark.skipif(DEVICE == "cpu", reason="of a photograph's size: for a GPU")
def test_photographs():
    images = of_sizes([(375, 500), (160, 213), (500, 333), (1200, 800)])
    found, wanted = both(EVERYTHING, images, torch.arange(4, device=DEVICE), size=224)
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=0)
