"""The fused views against the reference, operation by operation; in Triton's interpreter where there is no GPU."""

import math
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from hypersphere import kernels
from hypersphere.kernels import colours
from hypersphere.kernels import views as kernel
from hypersphere.util.random_numbers import PROBE, VIEWS, Key, uniforms
from hypersphere.views import PIPELINES, ViewPipeline, Views, with_small_crops
from hypersphere.views.dispatch import fused, fusible, reference
from tests.kernels.augmentations import ALONE, COLOUR, EVERYTHING, NOTHING

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = 1e-5  # of colours in [0, 1]; the interpreter keeps to 1e-6, a GPU divides less exactly


def recipe_of(how, channels=3, size=32):
    return ViewPipeline(size, (0.0,) * channels, (1.0,) * channels, (how,), how)


def both(recipe, shape, n=4, epoch=3, seed=5, stream=VIEWS, images=30, dtype=torch.float32):
    """The views by the kernel and by the reference: V × n × C × S × S each."""
    pixels = torch.randint(0, 256, (images, *shape), dtype=torch.uint8, device=DEVICE)
    sample = torch.randint(images, (n,), device=DEVICE)
    arguments = (recipe.augmentations, recipe, pixels, sample, Key(seed, epoch, stream), dtype)
    return torch.stack(fused(*arguments)), torch.stack(reference(*arguments))


def assert_same(found, wanted, atol=TOLERANCE):
    torch.testing.assert_close(found, wanted, atol=atol, rtol=0)


@triton.jit
def numbers_kernel(sample, epoch, out, key, view):
    place = tl.program_id(0)
    counter = (tl.load(sample + place).to(tl.uint32), tl.load(epoch).to(tl.uint32), view.to(tl.uint32))
    for block in range(2):
        a, b, c, d = colours.uniforms(key, counter, block)
        tl.store(out + place * 8 + block * 4, a)
        tl.store(out + place * 8 + block * 4 + 1, b)
        tl.store(out + place * 8 + block * 4 + 2, c)
        tl.store(out + place * 8 + block * 4 + 3, d)


@pytest.mark.parametrize(("seed", "stream", "epoch", "view"), [(0, VIEWS, 0, 0), (2**32 - 1, PROBE, 799, 3)])
def test_the_kernel_draws_the_same_numbers(seed, stream, epoch, view):
    sample = torch.tensor([0, 49_999, 2**31 + 5], device=DEVICE)
    out = torch.empty(3, 8, device=DEVICE)
    numbers_kernel[(3,)](sample, torch.tensor(epoch, device=DEVICE), out, seed | stream << 32, view)
    assert torch.equal(out, uniforms(8, sample, seed=seed, epoch=epoch, view=view, stream=stream))


OPERATIONS = {**ALONE, "crop": replace(NOTHING, crop=(0.08, 1.0), ratio=(3 / 4, 4 / 3))}


@pytest.mark.parametrize("how", OPERATIONS.values(), ids=OPERATIONS)
def test_each_operation_alone(how):
    """At 13 pixels, so that a tile has more cells than the view."""
    found, wanted = both(recipe_of(how, size=13), (3, 13, 13), n=3)
    assert_same(found, wanted)


def test_jitter_goes_in_all_orders():
    how = replace(COLOUR, brightness=0.8, contrast=0.8, saturation=0.8, hue=0.5)
    found, wanted = both(recipe_of(how, size=4), (3, 4, 4), n=40)
    assert_same(found, wanted)


@pytest.mark.parametrize(
    ("recipe", "shape"),
    [
        (PIPELINES["cifar10"], (3, 32, 32)),
        (PIPELINES["digits"], (1, 8, 8)),
        (replace(recipe_of(EVERYTHING), augmentations=(EVERYTHING, replace(EVERYTHING, flip=1))), (3, 32, 32)),
        (recipe_of(EVERYTHING, size=28), (3, 24, 40)),
        (recipe_of(EVERYTHING, size=12), (3, 30, 20)),
        (recipe_of(EVERYTHING, channels=1, size=12), (1, 10, 12)),
        (recipe_of(replace(EVERYTHING, crop=(1, 1)), size=16), (3, 8, 32)),
    ],
    ids=["cifar10", "digits", "everything", "oblong", "shrunk", "grey", "no box fits"],
)
def test_whole_recipes(recipe, shape):
    found, wanted = both(recipe, shape)
    assert_same(found, wanted, TOLERANCE / min(recipe.std))
    assert found[0].shape == (4, shape[0], recipe.size, recipe.size)


@pytest.mark.parametrize("equal", [True, False])
def test_randaugment_follows_the_kernel(equal):
    """But for bytes that are rounded the other way."""
    how = replace(EVERYTHING, operations=2)
    recipe = ViewPipeline(12, (0.4, 0.5, 0.6), (0.2, 0.3, 0.25), (how, how if equal else replace(how, flip=1)), how)
    found, wanted = both(recipe, (3, 12, 12), n=8)
    apart = (found - wanted).abs().amax(2)
    assert (apart < 1e-4).float().mean() > 0.98
    assert apart.max() < 0.5
    assert found[0].is_contiguous(memory_format=torch.channels_last)


def test_randaugment_is_rounded_at_its_end():
    how = replace(EVERYTHING, operations=2)
    recipe = ViewPipeline(12, (0.4, 0.5, 0.6), (0.2, 0.3, 0.25), (how,), how)
    found, wanted = both(recipe, (3, 12, 12), n=8, dtype=torch.bfloat16)
    assert found.dtype == torch.bfloat16
    assert ((found - wanted).abs().amax(2) < 0.02).float().mean() > 0.98  # bfloat16 has 8 bits


def test_rehearsal_leaves_nothing_that_randaugment_could_stumble_over(monkeypatch):
    """Then kernels write nothing, and views are whatever memory held."""
    how = replace(EVERYTHING, operations=2)
    recipe = replace(PIPELINES["cifar10"], augmentations=(how, how))
    pixels = torch.zeros(64, 3, 32, 32, dtype=torch.uint8, device=DEVICE)
    for garbage in (-7.0, 1e30, math.nan):
        monkeypatch.setattr(kernel, "fused_views", lambda *given, garbage=garbage, **key: given[3].fill_(garbage))
        fused((how, how), recipe, pixels, torch.arange(64, device=DEVICE), Key(0, 0, VIEWS), torch.float32)


def test_the_epoch_may_be_a_tensor_and_the_sample_strided():
    recipe, pixels = PIPELINES["digits"], torch.randint(0, 256, (9, 1, 8, 8), dtype=torch.uint8, device=DEVICE)
    arguments, sample = (recipe.augmentations, recipe, pixels), torch.arange(9, device=DEVICE)
    one = fused(*arguments, sample[::4], Key(1, 7, PROBE), torch.float32)
    two = fused(*arguments, sample[::4].contiguous(), Key(1, torch.tensor(7, device=DEVICE), PROBE), torch.float32)
    other = fused(*arguments, sample[::4], Key(1, 8, PROBE), torch.float32)
    assert torch.equal(torch.stack(one), torch.stack(two))
    assert not torch.equal(torch.stack(one), torch.stack(other))


def test_the_kernel_is_for_small_images_on_a_gpu(monkeypatch):
    def images(*shape):
        return torch.zeros(1, *shape, dtype=torch.uint8)

    cifar, imagenet = PIPELINES["cifar10"], PIPELINES["imagenet"]
    assert not fusible(images(3, 32, 32), cifar)
    monkeypatch.setattr(kernels, "usable", lambda x: True)
    assert fusible(images(3, 32, 32), cifar)
    assert fusible(images(3, 96, 96), PIPELINES["stl10"])
    assert fusible(images(1, 8, 8), PIPELINES["digits"])
    assert not fusible(images(3, 300, 32), cifar)
    assert not fusible(images(1, 32, 32), cifar)
    assert not fusible(images(3, 64, 64), imagenet)
    assert not fusible(images(3, 32, 64)[..., ::2], cifar)
    assert fusible(images(3, 32, 32), replace(cifar, augmentations=(replace(EVERYTHING, operations=2),)))


def test_views_come_from_the_kernel_where_it_runs(monkeypatch):
    recipe, pixels = PIPELINES["digits"], torch.randint(0, 256, (3, 1, 8, 8), dtype=torch.uint8, device=DEVICE)
    sample, views = torch.arange(3, device=DEVICE), Views(recipe, seed=2)
    calls = []
    launch = kernel.fused_views
    monkeypatch.setattr(kernel, "fused_views", lambda *a, **k: calls.append(k["first"]) or launch(*a, **k))
    with kernels.without_kernels():
        wanted = (*views.training(pixels, sample, 1), views.probing(pixels, sample, 1))
    assert calls == []
    monkeypatch.setattr(kernels, "usable", lambda x: True)
    found = (*views.training(pixels, sample, 1), views.probing(pixels, sample, 1))
    assert calls == [0, 0]  # one launch for both views, which have the same augmentation
    assert_same(torch.stack(found), torch.stack(wanted), TOLERANCE / min(recipe.std))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the interpreter stores bf16 wrongly")
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 5e-5), (torch.float16, 2e-3), (torch.bfloat16, 0.016)])
@pytest.mark.parametrize("name", ["cifar10", "stl10"])
def test_on_a_gpu(name, dtype, atol):
    """A box drawn at the edge between two sizes may come out as the other: of one image in 10⁴, say."""
    recipe = PIPELINES[name]
    found, wanted = both(recipe, (3, 96, 96) if name == "stl10" else (3, 32, 32), n=2000, images=500, dtype=dtype)
    assert found.dtype == dtype
    assert found[0].is_contiguous(memory_format=torch.channels_last)
    error = (found.float() - wanted.float()).abs().amax(dim=(2, 3, 4))
    assert (error > atol).sum() <= 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="captures a CUDA graph")
def test_a_captured_graph_draws_anew_for_each_epoch_and_sample():
    recipe = PIPELINES["cifar10"]
    pixels = torch.randint(0, 256, (100, 3, 32, 32), dtype=torch.uint8, device=DEVICE)
    sample, epoch = torch.arange(10, device=DEVICE), torch.zeros((), dtype=torch.int64, device=DEVICE)
    views = Views(recipe, seed=0)
    views.training(pixels, sample, epoch)  # compiled before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = views.training(pixels, sample, epoch)
    for when in (4, 5):
        epoch.fill_(when)
        sample.copy_(torch.randint(100, (10,)))
        graph.replay()
        for found, wanted in zip(captured, views.training(pixels, sample, when), strict=True):
            assert torch.equal(found, wanted)


def test_views_of_several_sizes(monkeypatch):
    """One launch for each size; the first two views are those without small crops."""
    recipe = with_small_crops(PIPELINES["digits"], 3)
    pixels = torch.randint(0, 256, (9, 1, 8, 8), dtype=torch.uint8, device=DEVICE)
    sample, key = torch.tensor([3, 8, 1], device=DEVICE), Key(1, 7, VIEWS)
    launches, launch = [], kernel.fused_views
    monkeypatch.setattr(kernel, "fused_views", lambda *a, **k: launches.append(k["first"]) or launch(*a, **k))
    found = fused(recipe.augmentations, recipe, pixels, sample, key, torch.float32)
    assert launches == [0, 2]
    assert [view.shape for view in found] == [(3, 1, 8, 8)] * 2 + [(3, 1, 4, 4)] * 3
    wanted = reference(recipe.augmentations, recipe, pixels, sample, key, torch.float32)
    for ours, theirs in zip(found, wanted, strict=True):
        assert_same(ours, theirs, TOLERANCE / min(recipe.std))
    two = fused(recipe.augmentations[:2], recipe, pixels, sample, key, torch.float32)
    assert torch.equal(torch.stack(two), torch.stack(found[:2]))
