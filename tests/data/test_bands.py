"""Images with any number of channels, of 8 and 16 bits and floats."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

import hypersphere as hs
from hypersphere.data import Dataset, DataSpec
from hypersphere.data.bands import Unreadable, as_bands, in_number, to_bytes
from hypersphere.data.decode import inspect_image, read_pixels
from hypersphere.data.object_datasets import as_images
from hypersphere.errors import UserError
from hypersphere.views import ops
from tests.folders import SMALL

FIVE = np.random.default_rng(0).integers(0, 256, (5, 24, 30), dtype=np.uint8)  # C × H × W
LAST = np.moveaxis(FIVE, 0, 2)


def tiff(numbers, **options):
    tifffile = pytest.importorskip("tifffile")
    file = io.BytesIO()
    tifffile.imwrite(file, numbers, **options)
    return file.getvalue()


def npy(numbers):
    file = io.BytesIO()
    np.save(file, numbers)
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        lambda: npy(FIVE),
        lambda: npy(LAST),
        lambda: tiff(FIVE, photometric="minisblack", planarconfig="separate"),
        lambda: tiff(LAST, photometric="minisblack", planarconfig="contig"),
        lambda: tiff(LAST, photometric="rgb", planarconfig="contig"),  # of which Pillow reads three
        lambda: tiff(FIVE, photometric="minisblack"),  # as pages
        lambda: tiff(FIVE, imagej=True),
    ],
)
def test_all_channels_are_read_in_their_order(content):
    content = content()
    assert np.array_equal(read_pixels(content, channels=5).numpy(), FIVE)
    assert inspect_image(io.BytesIO(content))[:3] == FIVE.shape
    with pytest.raises(Unreadable, match="it has 5 channels, not 1 or 3"):
        read_pixels(content, channels=3)


def test_pages_that_are_no_channels_are_not_mixed():
    stack = tiff(FIVE, photometric="minisblack", metadata=None)
    assert np.array_equal(read_pixels(stack, channels=1).numpy(), FIVE[:1])


def test_usual_images_have_one_or_three_channels(tmp_path):
    colours = Image.fromarray(np.moveaxis(FIVE[:3], 0, 2))
    for name, options in (("a.png", {}), ("a.tif", {}), ("a.jpg", {"quality": 95})):
        colours.save(tmp_path / name, **options)
        wanted = np.asarray(Image.open(tmp_path / name))
        assert np.array_equal(read_pixels(tmp_path / name, channels=3).permute(1, 2, 0).numpy(), wanted)
        grey = np.asarray(Image.open(tmp_path / name).convert("L")).astype(int)
        assert np.abs(read_pixels(tmp_path / name, channels=1)[0].numpy() - grey).max() <= (16 if ".jpg" in name else 0)
        with pytest.raises(Unreadable, match="it has 3 channels, not 5"):
            read_pixels(tmp_path / name, channels=5)
    Image.fromarray(FIVE[0]).save(tmp_path / "grey.png")
    with pytest.raises(Unreadable, match="it has 1 channel, not 5"):
        read_pixels(tmp_path / "grey.png", channels=5)


@pytest.mark.parametrize("white", [None, 4095])
def test_white_of_deep_colours(white):
    deep = np.random.default_rng(1).integers(0, (white or 65535) + 1, (3, 9, 11)).astype(np.uint16)
    wanted = np.minimum(deep / ((white or 65535) + 1) * 256, 255).astype(np.uint8)
    for content in (npy(deep), tiff(np.moveaxis(deep, 0, 2), photometric="rgb")):
        assert np.array_equal(read_pixels(content, white=white, channels=3).numpy(), wanted)


def test_numbers_become_bytes():
    assert to_bytes(np.array([0.0, 0.5, 1.0])).tolist() == [0, 128, 255]
    assert to_bytes(np.array([0.0, 5000.0, 20000.0]), white=10000).tolist() == [0, 128, 255]
    assert to_bytes(np.array([False, True])).tolist() == [0, 255]
    assert to_bytes(np.array([-4, 65535])).tolist() == [0, 255]
    assert to_bytes(np.array([-4, 70_000]), white=65535).tolist() == [0, 255]
    for numbers, told in (
        (np.array([0.0, 3.2]), "floats up to 3.2: scale"),
        (np.array([-4.0, 2]), "down to -4"),
        (np.array([0, 70_000]), "reach 70,000, more than 16 bits: scale them, or set `white`"),
        (np.array([0.5, np.nan]), "NaN or infinite"),
        (np.array([0.5, np.inf]), "NaN or infinite"),
        (np.array([-np.inf, 0.5]), "NaN or infinite"),
    ):
        with pytest.raises(Unreadable, match=told):
            to_bytes(numbers)


def test_grey_and_colours_alone_are_converted():
    grey = np.full((1, 2, 2), 77, np.uint8)
    assert (in_number(grey, 3) == 77).all()
    assert (in_number(np.repeat(grey, 3, 0), 1) == 77).all()
    with pytest.raises(Unreadable, match="2 channels, not 1 or 3"):
        in_number(np.repeat(grey, 2, 0), 3)


def test_damaged_headers_promise_nothing():
    content = npy(np.zeros((4, 4, 5)))
    huge = content.replace(b"(4, 4, 5)", b"(9999999, 99999, 5)")
    for damaged in (huge, content[:70], content[:-9]):
        with pytest.raises(Unreadable):
            read_pixels(damaged, channels=5)
    with pytest.raises(Unreadable, match="channels"):
        as_bands(np.broadcast_to(np.uint8(0), (600, 700, 800)))


def test_colour_changes_leave_other_channels_alone():
    images, factor = torch.rand(2, 5, 6, 6), torch.tensor([0.5, 1.5])
    for change in (ops.saturation, ops.hue):
        assert torch.equal(change(images, factor), images)
    assert torch.equal(ops.greyscale(images, torch.tensor([True, True])), images)
    wanted = [(f * image + (1 - f) * image.mean()).clamp(0, 1) for f, image in zip(factor, images, strict=True)]
    assert torch.allclose(ops.contrast(images, factor), torch.stack(wanted), atol=1e-6)


@pytest.mark.parametrize("laid_out", [(7, 8, 9, 5), (7, 5, 8, 9)])
def test_arrays_with_channels_first_or_last(laid_out):
    pixels = np.random.default_rng(2).integers(0, 4096, laid_out).astype(np.uint16)
    first = np.moveaxis(pixels, 3, 1) if laid_out[3] == 5 else pixels
    assert np.array_equal(as_images("a", pixels, 4095).numpy(), first // 16)


def write_bands(folder, count=40):
    """Two classes that differ in band 3 alone."""
    for number in range(count):
        bands = np.random.default_rng(number).random((5, 20, 20), dtype=np.float32) * 0.5
        bands[3] += 0.4 * (number % 2)
        path = folder / "ab"[number % 2] / f"{number:02}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, bands)
    return folder


def test_from_pretrain_to_export(tmp_path, capsys):
    folder = write_bands(tmp_path / "bands")
    run = hs.pretrain("byol", data=folder, out=tmp_path / "run", **{**SMALL, "encoder": "hypersphere/digits"})
    every = np.stack([np.load(path) for path in sorted(folder.rglob("*.npy"))])
    assert len(run.config.mean) == len(run.config.std) == 5
    assert np.allclose(run.config.mean, every.mean((0, 2, 3)), atol=0.02)
    assert np.allclose(run.config.std, every.std((0, 2, 3)), atol=0.02)
    assert "5 channels: mean 0.2" in capsys.readouterr().err
    assert run.evaluate("knn")["knn"]["top1"] > 0.9

    exported = hs.load(hs.export(run, tmp_path / "export"), device="cpu")
    assert exported.preprocess.mean == run.config.mean
    vectors = hs.load(run.path, device="cpu").encode([(every[0] * 255).round().astype(np.uint8)])
    assert torch.allclose(exported.encode([min(folder.rglob("*.npy"))]), vectors, atol=1e-4)
    swapped = exported.encode([(every[0][[3, 1, 2, 0, 4]] * 255).round().astype(np.uint8)])
    assert not torch.allclose(swapped, vectors, atol=1e-2)
    resumed = hs.pretrain(resume=run.path, progress=False)
    assert resumed.config.hash == run.config.hash
    with pytest.raises(UserError, match=r"an image of uint8 and shape \(3, 8, 8\) .*it has 3 channels, not 5"):
        exported.encode([np.zeros((3, 8, 8), np.uint8)])


def test_options_for_other_channels_are_refused_with_their_name(tmp_path):
    folder = write_bands(tmp_path / "bands", 20)
    with pytest.raises(UserError, match="`mean` has 1 number, but images have 5 channels: give one for each channel"):
        hs.pretrain("byol", data=folder, mean=(0.5,), std=(0.2,))
    with pytest.raises(
        UserError, match="`init` pretrained of torchvision/resnet18 is for 3 channels, but images have 5"
    ):
        hs.pretrain("byol", data=folder, encoder="torchvision/resnet18", init="pretrained", size=32, device="cpu")


def test_evaluate_classify_and_diagnose_on_other_channels(tmp_path):
    folder = write_bands(tmp_path / "bands")
    grey = tmp_path / "grey"
    for number in range(40):
        path = grey / "ab"[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(FIVE[number % 5]).save(path)
    run = hs.pretrain("byol", data=grey, out=tmp_path / "run", **{**SMALL, "encoder": "hypersphere/digits"})
    why = r"images could be read, such as .*npy \(it has 5 channels, not 1( or 3)?\)"
    with pytest.raises(UserError, match=why):
        run.evaluate("knn", transfer=str(folder))
    with pytest.raises(UserError, match=why):
        hs.classify(run, tmp_path / "classifier", data=folder)
    network = torch.nn.Sequential(torch.nn.Conv2d(5, 8, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    images = torch.randint(0, 256, (64, 5, 12, 12), dtype=torch.uint8)
    assert hs.diagnose(network, data=images).numbers["effective_rank"] > 0
    with pytest.raises(UserError, match="takes images with 1 channel, but these have 5"):
        hs.diagnose(run, data=images)


def test_a_tiff_with_nan_is_not_encoded(tmp_path):
    floats = np.where(FIVE[0] > 250, np.nan, FIVE[0] / 255).astype(np.float32)
    with pytest.raises(Unreadable, match="NaN or infinite"):
        read_pixels(tiff(floats), channels=3)


def test_grey_images_keep_their_channel_unless_the_encoder_needs_three(tmp_path):
    from hypersphere.runs.recipes import recipe_for

    for number in range(12):
        Image.fromarray(FIVE[number % 5] // 2).save(tmp_path / f"{number}.png")
    one = recipe_for("byol", tmp_path)
    (mean,) = one.mean
    assert mean == pytest.approx((FIVE // 2)[[*range(5), *range(5), 0, 1]].mean() / 255, abs=1e-3)
    assert Dataset.resolve(one).split("validation").train.channels == 1
    for options in ({"init": "pretrained"}, {"encoder": "torchvision/mobilenet_v2"}):
        three = recipe_for("byol", tmp_path, **options)
        assert three.mean == ()
        assert Dataset.resolve(three).split("validation").train.channels == 3


def test_different_numbers_of_channels_are_one_line(tmp_path):
    for name, bands in (("a", FIVE), ("b", FIVE[:4])):
        np.save(tmp_path / f"{name}.npy", bands)
    with pytest.raises(UserError, match=r"different numbers of channels, 4 .such as .*b.npy. and 5 .such as .*a.npy"):
        Dataset.resolve(DataSpec(str(tmp_path))).summary()


def test_arrays_beside_images_are_not_images(tmp_path, capsys):
    Image.fromarray(FIVE[0]).save(tmp_path / "a.png")
    np.save(tmp_path / "features.npy", np.zeros((3, 8)))
    assert len(Dataset.resolve(DataSpec(str(tmp_path))).parts["train"]) == 1
    assert "ignored 1 .npy files" in capsys.readouterr().err
