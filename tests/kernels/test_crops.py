"""What follows the crop, by kernels, against the reference; in Triton's interpreter where there is no GPU."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from hypersphere import kernels
from hypersphere.kernels import crops as kernel
from hypersphere.util.random_numbers import PROBE, VIEWS, Key
from hypersphere.views import ViewPipeline, crops, folder_pipeline
from tests.kernels.augmentations import ALONE, EVERYTHING

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def both(how, size=13, n=4, stream=VIEWS, dtype=torch.float32, mean=0.0, std=1.0):
    recipe = ViewPipeline(size, (mean,) * 3, (std,) * 3, (how,), how)
    bytes_of_more = torch.randint(0, 256, (n, 3 * size * size + 5), dtype=torch.uint8, device=DEVICE)
    part = bytes_of_more[:, 5:]  # as one view lies behind another
    sample = torch.randint(100, (n, 2), device=DEVICE)[:, 0]  # a column, with other numbers between
    given = (how, recipe, part, sample, Key(5, 3, stream), dtype)
    return [make(*given, view=1) for make in (crops.fused, crops.reference)]


def assert_same(found, wanted, atol=1e-5):
    torch.testing.assert_close(found, wanted, atol=atol, rtol=0)


@pytest.mark.parametrize("how", ALONE.values(), ids=ALONE)
def test_each_operation_alone(how):
    assert_same(*both(how))


@pytest.mark.parametrize(("stream", "n"), [(VIEWS, 60), (PROBE, 8)])
def test_all_together_in_each_order(stream, n):
    """Of 60 images, among which are all orders of the changes; of other draws a few."""
    assert_same(*both(EVERYTHING, n=n, stream=stream, mean=0.4, std=0.25), atol=1e-4)


def test_images_of_many_tiles(monkeypatch):
    monkeypatch.setattr(kernel, "TILE", 128)
    monkeypatch.setattr(kernel, "MEANS", {"TILE": 256, "num_warps": 4})
    assert_same(*both(EVERYTHING, size=30, n=6))


def test_half_precision_is_the_rounded_view():
    found, wanted = both(EVERYTHING, dtype=torch.bfloat16)
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, wanted, atol=4e-3, rtol=8e-3)  # the last of 8 bits


def test_randaugment_follows_the_kernels():
    """But for bytes that are rounded the other way."""
    found, wanted = both(replace(EVERYTHING, operations=2), size=12, n=12, mean=0.4, std=0.25)
    apart = (found - wanted).abs()
    assert (apart < 1e-4).float().mean() > 0.98
    assert apart.max() < 0.5


def test_the_views_of_files_are_made_so(monkeypatch):
    recipe, seen = folder_pipeline(64), []
    bytes_ = torch.zeros(2, 2 * 3 * 64 * 64, dtype=torch.uint8)
    monkeypatch.setattr(kernels, "usable", lambda x: True)
    for name in ("fused", "reference"):
        monkeypatch.setattr(crops, name, lambda *given, name=name, view: seen.append((name, view)))
    crops.finished(recipe, bytes_, torch.arange(2), Key(0, 0), torch.float32)
    assert seen == [("fused", 0), ("fused", 1)]


@pytest.mark.skipif(DEVICE == "cpu", reason="of a photograph's size: for a GPU")
def test_photographs():
    for how in folder_pipeline(224).augmentations:
        assert_same(*both(how, size=224, n=32))
