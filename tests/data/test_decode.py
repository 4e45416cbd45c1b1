"""Every kind of image file that people have, and what is no image."""

import io
import math
import os
import struct
import threading
import time
import zlib
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

from hypersphere.data.decode import Unreadable, read_image, read_pixels
from hypersphere.data.folder import Listing
from hypersphere.data.survey import survey

GRADIENT = np.linspace(0, 255, 40 * 30).reshape(30, 40).astype(np.uint8)
COLOURS = np.stack([GRADIENT, GRADIENT[::-1], 255 - GRADIENT], axis=2)


def saved(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pixels(content, **options):
    image = read_image(content, **options)
    assert image.mode == "RGB"
    return np.asarray(image)


def test_colour_grey_palette_and_cmyk():
    colour = Image.fromarray(COLOURS)
    np.testing.assert_array_equal(pixels(saved(colour)), COLOURS)
    np.testing.assert_array_equal(pixels(saved(Image.fromarray(GRADIENT))), np.stack([GRADIENT] * 3, axis=2))
    few = colour.quantize(256)
    np.testing.assert_array_equal(pixels(saved(few)), np.asarray(few.convert("RGB")))
    cmyk = pixels(saved(colour.convert("CMYK"), "JPEG", quality=95))
    assert np.abs(cmyk.astype(int) - COLOURS).mean() < 6
    assert pixels(saved(colour, "WEBP")).shape == pixels(saved(colour, "GIF")).shape == (30, 40, 3)


def test_sixteen_bits_keep_their_upper_eight():
    deep = (GRADIENT.astype(np.uint16) << 8) + 77
    np.testing.assert_array_equal(pixels(saved(Image.fromarray(deep)))[:, :, 0], GRADIENT)
    np.testing.assert_array_equal(pixels(saved(Image.fromarray(deep.astype(np.int32)), "TIFF"))[:, :, 1], GRADIENT)


@pytest.mark.parametrize("white", [255, 1000, 4095, 65535])
def test_white_in_sixteen_bits(white):
    """By exact fractions; what is above it is white, too."""
    values = [0, 1, 15, 16, 254, 255, 256, 999, 1000, 1001, 4094, 4095, 4096, 65534, 65535]
    wanted = [min(255, math.floor(Fraction(256 * value, white + 1))) for value in values]
    deep = saved(Image.fromarray(np.array([values], np.uint16)))
    signed = saved(Image.fromarray(np.array([[-7, *values, 70000]], np.int32)), "TIFF")
    assert pixels(deep, white=white)[0, :, 2].tolist() == wanted
    assert read_pixels(deep, None, white)[1, 0].tolist() == wanted
    assert pixels(signed, white=white)[0, :, 0].tolist() == [0, *wanted, 255]
    np.testing.assert_array_equal(pixels(saved(Image.fromarray(GRADIENT)), white=white)[:, :, 0], GRADIENT)


def test_transparency_is_over_white():
    alpha = np.where(np.arange(40) < 20, 0, 255).astype(np.uint8)[None].repeat(30, 0)
    shown = pixels(saved(Image.fromarray(np.dstack([COLOURS, alpha]))))
    assert (shown[:, :20] == 255).all()
    np.testing.assert_array_equal(shown[:, 20:], COLOURS[:, 20:])


def test_a_camera_held_upright():
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90° clockwise
    turned = pixels(saved(Image.fromarray(COLOURS), "PNG", exif=exif))
    np.testing.assert_array_equal(turned, np.rot90(COLOURS, -1))


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "JPEG"])
@pytest.mark.parametrize("exif", [b"garbage!!", b"II*\0\x08\0\0\0\x05\0\x12\x01"])
def test_broken_metadata_do_no_harm(kind, exif):
    options = {"lossless": True} if kind == "WEBP" else {}
    content = saved(Image.fromarray(COLOURS), kind, exif=b"Exif\0\0" + exif, **options)
    wanted = np.asarray(Image.open(io.BytesIO(saved(Image.fromarray(COLOURS), kind, **options))))
    np.testing.assert_array_equal(pixels(content), wanted)


def test_a_large_photograph_is_decoded_smaller():
    large = Image.fromarray(COLOURS).resize((1600, 1200))
    content = saved(large, "JPEG", quality=95)
    assert read_image(content).size == (1600, 1200)
    small = read_image(content, side=200)
    assert 200 <= min(small.size) < 400
    wanted = np.asarray(large.resize(small.size, Image.Resampling.BOX)).astype(int)
    assert np.abs(np.asarray(small).astype(int) - wanted).mean() < 2


def bomb(side):
    """A small PNG that says it has side × side pixels."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not an image"),
        (b"hello", "not an image"),
        (saved(Image.fromarray(COLOURS))[:-200], ""),
        (saved(Image.fromarray(COLOURS), "JPEG")[:300], ""),
        (bomb(20_000), "too large"),
        (bomb(100), ""),
        (saved(Image.fromarray(GRADIENT.astype(np.float32)), "TIFF"), "floats of unknown range"),
    ],
)
def test_what_cannot_be_read_says_why(content, why):
    with pytest.raises(Unreadable) as told:
        read_image(content)
    assert why in str(told.value)
    assert 0 < len(str(told.value)) < 100


@pytest.mark.parametrize(("brightest", "dark"), [(4095, True), (65535, False), (40000, False), (0, False)])
def test_images_of_16_bits_that_use_few_of_them_are_told(tmp_path, brightest, dark):
    values = np.linspace(0, brightest, 64).astype(np.uint16).reshape(8, 8)
    Image.fromarray(values).save(tmp_path / "a.png")
    Image.new("RGB", (8, 8), "white").save(tmp_path / "b.png")
    found = survey(Listing((tmp_path / "a.png", tmp_path / "b.png")))
    assert found.brightest == brightest
    told = "16-bit pixels reach only 4,095 of 65,535, so images look dark: set `white`, such as 4095"
    assert found.warning == (told if dark else "")


@pytest.mark.parametrize(
    ("brightest", "white", "told"),
    [
        (4000, 4095, ""),
        (900, 4095, "16-bit pixels reach only 900 of 4,095, so images look dark: set `white`, such as 1023"),
        (5000, 4095, "16-bit pixels reach 5,000: values above 4,095 (`white`) become white"),
    ],
)
def test_what_does_not_go_with_the_white_that_was_said_is_told(tmp_path, brightest, white, told):
    Image.fromarray(np.full((8, 8), brightest, np.uint16)).save(tmp_path / "a.png")
    assert survey(Listing((tmp_path / "a.png",)), white).warning == told


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes in folders here")
def test_a_pipe_is_not_waited_for(tmp_path):
    pipe, one = tmp_path / "pipe.png", tmp_path / "one.png"
    os.mkfifo(pipe)
    Image.new("RGB", (8, 6)).save(one)
    rescue = threading.Timer(20, lambda: open(pipe, "wb").close())  # a reader that waits would get nothing
    rescue.daemon = True
    rescue.start()
    began = time.monotonic()
    for read in (read_image, read_pixels):
        with pytest.raises(Unreadable, match="not a regular file, but a pipe"):
            read(pipe)
    assert survey(Listing((pipe, one)))[2:6] == ((6, 6, 6), 1, 2, 0)
    assert time.monotonic() - began < 10
    rescue.cancel()


def test_a_link_to_nothing(tmp_path):
    (tmp_path / "link.jpg").symlink_to("nowhere")
    with pytest.raises(Unreadable, match="broken link"):
        read_pixels(tmp_path / "link.jpg")


def test_a_file_that_is_gone(tmp_path):
    with pytest.raises(Unreadable, match="file not found"):
        read_image(tmp_path / "gone.png")


@pytest.mark.parametrize("shape", [(30, 40, 3), (30, 40)])
def test_pixels_are_those_of_the_image(shape):
    """Whichever decoder reads them."""
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 8
    for content in (saved(picture, "JPEG", exif=exif), saved(picture, "PNG"), saved(picture.convert("CMYK"), "JPEG")):
        np.testing.assert_array_equal(read_pixels(content).permute(1, 2, 0).numpy(), pixels(content))
    large = saved(picture.resize((900, 700)), "JPEG")
    assert read_pixels(large, side=100).shape == (3, *np.asarray(read_image(large, side=100)).shape[:2])
    for broken in (b"", large[:2000], bomb(20_000)):
        with pytest.raises(Unreadable):
            read_pixels(broken)
