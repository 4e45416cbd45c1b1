"""Probes of files against the same probes of the same images in memory."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from hypersphere.data import Images, Listing
from hypersphere.data.loader import MemoryLoader, StreamLoader
from hypersphere.errors import UserError
from hypersphere.evaluate import evaluate_encoder, features_of
from hypersphere.views import Views, folder_pipeline

CPU = torch.device("cpu")
RECIPE = folder_pipeline(32)  # resized to 37 pixels a side, of which the middle 32 are shown
CLASSES = ("dark", "light")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Sixty pictures of 37 × 37 pixels, in files and in memory; one in ten is without a label."""
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    labels = torch.tensor([-1 if n % 10 == 9 else n % 2 for n in range(60)])
    pixels = rng.integers(80, 150, (60, 37, 37, 3)) + 30 * (np.arange(60) % 2)[:, None, None, None]
    pixels = pixels.astype(np.uint8)
    paths = tuple(folder / f"{n:02}.png" for n in range(60))
    for path, picture in zip(paths, pixels, strict=True):
        Image.fromarray(picture).save(path)
    files = StreamLoader(Listing(paths, labels, CLASSES), RECIPE, 3, CPU, workers=0)
    images = Images(torch.from_numpy(pixels).permute(0, 3, 1, 2), labels, CLASSES)
    return files, MemoryLoader(images, Views(RECIPE, 3))


def test_features_and_labels_are_those_in_memory(both):
    encoder = nn.Sequential(nn.AvgPool2d(8), nn.Flatten())
    (ours, labels), (theirs, truth) = (features_of(some.labelled, encoder) for some in both)
    assert len(labels) == 54
    assert torch.equal(labels, truth)
    torch.testing.assert_close(ours, theirs)


def test_crops_are_those_in_memory_but_for_rounding_to_bytes(both):
    order = [(2, torch.tensor([5, 0, 33])), (3, torch.tensor([33]))]
    ours, theirs = (list(some.cropped(order, torch.float32)) for some in both)
    for (x, label), (y, truth) in zip(ours, theirs, strict=True):
        assert torch.equal(label, truth)
        torch.testing.assert_close(x, y, rtol=0, atol=2.5 / 255 / min(RECIPE.std))
    assert not torch.equal(ours[0][0][2], ours[1][0][0])  # another epoch, another crop


def test_augmented_views_are_those_in_memory_but_for_rounding_to_bytes(both):
    ours, theirs = (list(some[torch.arange(20)].augmented(3, torch.float32)) for some in both)
    assert [len(part) for part in ours] == [3, 3]  # views of 16 images, then of 4
    assert [len(part[0]) for part in ours] == [16, 4]
    for ours_of_view, theirs_of_view in zip(*(zip(*parts, strict=True) for parts in (ours, theirs)), strict=True):
        x, y = torch.cat(ours_of_view), torch.cat(theirs_of_view)
        torch.testing.assert_close(x, y, rtol=0, atol=4 / 255 / min(RECIPE.std))
    again = both[0][torch.arange(20)].augmented(3, torch.float32)
    assert all(
        torch.equal(x, y) for part, same in zip(ours, again, strict=True) for x, y in zip(part, same, strict=True)
    )
    assert not torch.equal(ours[0][0], ours[0][2])  # another view by the same augmentation


def test_all_probes(both):
    probes = ("knn", "few-shot", "linear-cached", "linear", "semi-10")
    encoder = nn.Sequential(nn.AvgPool2d(16), nn.Flatten())
    ours, theirs = (
        evaluate_encoder(encoder, some[torch.arange(40)], some[torch.arange(40, 60)].labelled, probes, linear_epochs=2)
        for some in both
    )
    assert ours.keys() == theirs.keys()
    for probe in ours:
        assert ours[probe] == pytest.approx(theirs[probe], rel=1e-3), probe
    assert ours["linear"]["top1"] == 100


def test_what_cannot_be_read_is_left_out_of_features_and_views_and_replaced_in_crops(both, tmp_path):
    files, _ = both
    (tmp_path / "broken.png").write_bytes(b"no picture")
    paths = (files.images.paths[0], tmp_path / "broken.png", files.images.paths[1])
    some = StreamLoader(Listing(paths, torch.tensor([0, 1, 1]), CLASSES), RECIPE, 3, CPU, workers=0)
    features, labels = features_of(some, nn.Flatten())
    assert (len(features), labels.tolist()) == (2, [0, 1])
    ((x, replaced),) = some.cropped([(0, torch.tensor([1, 0]))], torch.float32)
    assert replaced.tolist() == [0, 0]
    assert torch.equal(x[0], x[1])
    (views,) = some.augmented(4, torch.float32)
    assert [len(view) for view in views] == [2] * 4
    assert list(some[torch.tensor([1])].augmented(4, torch.float32)) == []
    with pytest.raises(UserError, match=r"none of 1 images could be read, such as .*broken.png \(not an image\)"):
        features_of(some[torch.tensor([1])], nn.Flatten())
