"""Decode image files of any kind into pixels. A file that cannot be decoded raises `Unreadable` with a short reason."""

import contextlib
import importlib.util
import io
import os
import stat
import warnings
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hypersphere.data.bands import (
    ARRAY,
    WHITE,
    Unreadable,
    errors_as_unreadable,
    has_bands,
    header_of,
    in_number,
    read_bands,
    to_bytes,
    wrong_number,
)

__all__ = [
    "HEIF",
    "WHITE",
    "ImageProperties",
    "Unreadable",
    "as_rgb",
    "inspect_image",
    "is_grey",
    "open_file",
    "open_image",
    "preview",
    "read_image",
    "read_pixels",
    "reads_heif",
]

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "PPM", "JPEG2000", "AVIF", "TGA")  # names of Pillow
HEIF = (".heic", ".heif", ".hif")


def read_image(file: Path | IO[bytes] | bytes, side: int | None = None, white: int | None = None) -> Any:
    """Read the first frame of an image as a PIL image in RGB, rotated by its EXIF tag, on a white background.

    Args:
        file: A path, an open file, or the content of one.
        side: If given, a JPEG may be decoded smaller, with a shorter side of at least `side` pixels.
        white: Value of white in 16-bit grey images (None: 65535).

    Raises:
        Unreadable: If the file is not an image that can be read.
    """
    from PIL import Image, UnidentifiedImageError

    with errors_as_unreadable():
        try:
            image = open_image(io.BytesIO(_content(file)) if isinstance(file, Path | bytes) else file)
            if side is not None and image.format == "JPEG":
                scale = max(1, min(image.size) // side)
                image.draft("RGB", (image.width // scale, image.height // scale))
            image.load()
            return as_rgb(image, white)
        except UnidentifiedImageError:
            raise Unreadable("not an image") from None
        except Image.DecompressionBombError:
            raise Unreadable("too large: more than 179 megapixels") from None


def open_image(file: IO[bytes]) -> Any:
    """`PIL.Image.open` for the formats of `FORMATS` alone. Others may start programs, as PostScript does."""
    from PIL import Image

    return Image.open(file, formats=_known_formats())


@cache
def _known_formats() -> tuple[str, ...]:
    """Those that this version of Pillow can read, and HEIF if pillow-heif is installed."""
    from PIL import Image

    Image.init()
    if reads_heif():
        from pillow_heif import register_heif_opener  # type: ignore[import-not-found,import-untyped,unused-ignore]

        register_heif_opener()
    return tuple(name for name in (*FORMATS, "HEIF") if name in Image.OPEN)


@cache
def reads_heif() -> bool:
    return importlib.util.find_spec("pillow_heif") is not None


def as_rgb(image: Any, white: int | None = None) -> Any:
    """Convert a PIL image of any mode as `read_image` does."""
    from PIL import Image, ImageOps

    with contextlib.suppress(Exception):  # broken metadata: the pixels can still be used
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16 bits, possibly stored in 32
        most = white or WHITE
        wide = np.asarray(image).astype(np.int64).clip(0, most)
        return Image.fromarray((wide * 256 // (most + 1)).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise Unreadable("pixels are floats of unknown range")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        paper = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(paper, image).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def read_pixels(
    file: Path | bytes, side: int | None = None, white: int | None = None, channels: int | None = None
) -> Tensor:
    """Read the first frame of an image as uint8 of shape (C, H, W).

    Args:
        file: A path, or the content of a file.
        side: See `read_image`.
        white: Value of white in images of more than 8 bits (None: 65535 for integers, 1 for floats).
        channels: Number of channels C. None: 3, and of TIFF files with more channels those that Pillow reads.

    Raises:
        Unreadable: If the file is not an image that can be read, or has another number of channels.
    """
    content = _content(file)
    if has_bands(io.BytesIO(content)) and (channels is not None or content.startswith(ARRAY)):
        return _bands(content, white, channels or 3)
    if channels not in (None, 1, 3):
        read_image(content, side, white)  # gives the reason if it is not an image
        raise Unreadable(wrong_number(1 if is_grey(open_image(io.BytesIO(content))) else 3, channels))
    grey = channels == 1
    if content[:2] == JPEG and _is_plain(content, side):
        from torchvision.io import ImageReadMode, decode_jpeg

        with contextlib.suppress(RuntimeError):  # PIL may read it, or gives the reason
            packed = torch.frombuffer(bytearray(content), dtype=torch.uint8)
            mode = ImageReadMode.GRAY if grey else ImageReadMode.RGB
            return decode_jpeg(packed, mode=mode, apply_exif_orientation=True)
    image = read_image(content, side, white)
    return (
        torch.from_numpy(np.array(image.convert("L") if grey else image)).view(*image.size[::-1], -1).permute(2, 0, 1)
    )


@errors_as_unreadable()
def _bands(content: bytes, white: int | None, channels: int) -> Tensor:
    pixels = in_number(to_bytes(read_bands(io.BytesIO(content)), white), channels)
    return torch.from_numpy(np.ascontiguousarray(pixels))


def is_grey(image: Any) -> bool:
    """Whether a PIL image has one channel beside alpha."""
    return image.mode in GREY or image.mode.startswith("I")


def preview(file: Path | bytes, side: int | None = None, white: int | None = None) -> Any:
    """An image as a PIL image to look at: of images with bands the first three channels, or the first one."""
    from PIL import Image

    content = _content(file)
    if not has_bands(io.BytesIO(content)):
        return read_image(content, side, white)
    with errors_as_unreadable():
        bands = to_bytes(read_bands(io.BytesIO(content)), white)
    return Image.fromarray(bands[0] if len(bands) < 3 else np.ascontiguousarray(np.moveaxis(bands[:3], 0, 2)))


class ImageProperties(NamedTuple):
    """What an image file is, mostly from its header."""

    channels: int
    height: int
    width: int
    brightest: int = 0  # largest value of a pixel of more than 8 bits
    frames: int = 1

    @property
    def side(self) -> int:
        """The shorter side in pixels."""
        return min(self.height, self.width)


def inspect_image(file: IO[bytes]) -> ImageProperties:
    """Look at an image file. Raises errors of any kind if it is not an image."""
    if has_bands(file):
        shape, dtype = header_of(file)
        wide = dtype.kind in "iu" and dtype.itemsize > 1
        return ImageProperties(*shape, int(read_bands(file).max()) if wide else 0)
    file.seek(0)
    image = open_image(file)
    brightest = int(np.asarray(image).max()) if image.mode.startswith("I") else 0
    return ImageProperties(
        1 if is_grey(image) else 3, image.height, image.width, brightest, getattr(image, "n_frames", 1)
    )


JPEG = b"\xff\xd8"
GREY = ("1", "L", "LA", "La", "F")  # modes of Pillow


def _content(file: Path | bytes) -> bytes:
    if isinstance(file, bytes):
        return file
    try:
        with open_file(file) as opened:
            return opened.read()
    except FileNotFoundError:
        raise Unreadable("broken link" if file.is_symlink() else "file not found") from None
    except OSError as error:
        raise Unreadable(error.strerror or type(error).__name__) from None


def open_file(path: Path) -> IO[bytes]:
    """Open a regular file for reading; refuse a pipe, which would block until something writes into it."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise Unreadable("not a regular file, but a pipe, a device or a folder")


def _is_plain(content: bytes, side: int | None) -> bool:
    """Whether the header says RGB or grey, and the image is less than twice as large as `side`."""
    try:
        with warnings.catch_warnings(action="ignore"):
            image = open_image(io.BytesIO(content))
    except Exception:
        return False
    small = image.width * image.height < 50_000_000 and (side is None or min(image.size) < 2 * side)
    return small and image.mode in ("RGB", "L")
