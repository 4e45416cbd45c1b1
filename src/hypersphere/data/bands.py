"""Images that Pillow reads only in part: TIFF files with more channels or bits, 16-bit colour PNG, and .npy files."""

import contextlib
import importlib.util
import io
import warnings
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import torch

from hypersphere.errors import first_line
from hypersphere.util.array_files import read_header

WHITE = 65535  # default value of white in images of more than 8 bits
BYTE = 255
MOST_CHANNELS = 512
MOST_PIXELS = 178_956_970  # as Pillow
MOST_VALUES = 2**30  # numbers in one image; a damaged header may promise any number
ARRAY = b"\x93NUMPY"
PNG = b"\x89PNG\r\n\x1a\n"
DEEP_COLOUR = ((16, 2), (16, 6))  # bits and type in the header of a PNG file: colours, without and with alpha
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
BITS, PHOTOMETRIC, SAMPLES, EXTRA_SAMPLES, SAMPLE_FORMAT = 258, 262, 277, 338, 339  # tags of TIFF
ALPHA = (1, 2)  # values of EXTRA_SAMPLES
COLOURS = {0: 1, 1: 1, 3: 1, 4: 1, 5: 4}  # by PHOTOMETRIC: grey, palette, mask, CMYK; others have 3


class Unreadable(Exception):
    """An image cannot be used; the message is the reason."""


@contextlib.contextmanager
def errors_as_unreadable() -> Iterator[None]:
    """Raise any error of a decoder as `Unreadable`, and ignore warnings about large images and odd metadata."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except Unreadable:
        raise
    except FileNotFoundError:
        raise Unreadable("file not found") from None
    except Exception as error:
        raise Unreadable(first_line(error)) from None


def has_bands(file: IO[bytes]) -> bool:
    """Whether Pillow would not read this image, or only in part."""
    start = _start(file)
    if start.startswith(PNG):
        return tuple(start[24:26]) in DEEP_COLOUR
    return start.startswith(ARRAY) or (start.startswith(TIFF) and not _is_plain_tiff(file))


def _start(file: IO[bytes]) -> bytes:
    """The first bytes of a file."""
    file.seek(0)
    start = file.read(32)
    file.seek(0)
    return start


def _is_plain_tiff(file: IO[bytes]) -> bool:
    """Whether a TIFF file has one page of 8 bits, or of 16 bits in grey, without bands beside colours and alpha."""
    from PIL.TiffImagePlugin import ImageFileDirectory_v2

    try:
        with warnings.catch_warnings(action="ignore"):
            file.seek(0)
            start = file.read(8)
            tags = ImageFileDirectory_v2(start + file.read(8) if b"+" in start[2:4] else start)
            file.seek(tags.next)
            tags.load(file)
            samples, bits = tags.get(SAMPLES, 1), max(tags.get(BITS, (1,)))
            unsigned = set(tags.get(SAMPLE_FORMAT, (1,))) <= {1, 4}
            extra = tags.get(EXTRA_SAMPLES, ())
            meaning = tags.get(PHOTOMETRIC, 1)
            colours = COLOURS.get(meaning, 3)
            known = samples == colours + len(extra) and extra in ((), *((alpha,) for alpha in ALPHA))
            pages = tags.next != 0 and meaning == 1 and _installed()  # which may be bands
            return known and unsigned and (bits <= 8 or (bits == 16 and samples == 1)) and not pages
    except Exception:  # damaged: Pillow gives the reason
        return True


def _installed() -> bool:
    return importlib.util.find_spec("tifffile") is not None


def header_of(file: IO[bytes]) -> tuple[tuple[int, int, int], np.dtype]:
    """((channels, height, width), dtype) of an image with bands."""
    start = _start(file)
    if start.startswith(PNG):
        return (3, int.from_bytes(start[20:24]), int.from_bytes(start[16:20])), np.dtype(np.uint16)
    if start.startswith(ARRAY):
        header = read_header(file)
        image = as_bands(_zeros(header.shape, header.dtype))
    else:
        image = _read_tiff(file, header=True)
    return image.shape, image.dtype


def _zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Zeros that take no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def read_bands(file: IO[bytes]) -> np.ndarray:
    """The numbers of an image with bands, C × H × W, of any dtype.

    Raises:
        Unreadable: If the file is not such an image.
    """
    start = _start(file)
    if start.startswith(PNG):
        return _read_png(file)
    return _read_array(file) if start.startswith(ARRAY) else _read_tiff(file)


def _read_png(file: IO[bytes]) -> np.ndarray:
    """16-bit colours; transparent ones are put over white."""
    from torchvision.io import ImageReadMode, decode_png

    (_, height, width), _ = header_of(file)
    if height * width > MOST_PIXELS:
        raise Unreadable(f"it is too large: {height} × {width} pixels")
    packed = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    pixels = decode_png(packed, mode=ImageReadMode.UNCHANGED).numpy()
    if len(pixels) == 3:
        return pixels
    colours, alpha = pixels[:3].astype(np.float64), pixels[3] / WHITE
    return np.rint(colours * alpha + WHITE * (1 - alpha)).astype(np.uint16)


def _read_array(file: IO[bytes]) -> np.ndarray:
    held = file.seek(0, io.SEEK_END)
    file.seek(0)
    if (header := read_header(file)).size > held or min(header.shape, default=0) < 0:
        raise Unreadable(f"its header promises an array of shape {header.shape}, which is more than it holds")
    file.seek(0)
    return as_bands(np.lib.format.read_array(file, allow_pickle=False))


def assumed_white(*arrays: np.ndarray) -> int:
    """The value of white in the integers of some arrays, if the user sets none.

    255 if they all fit 8 bits, since many bytes are in wider dtypes; but uint16 means 16 bits. Otherwise 65535.
    """
    integers = [numbers for numbers in arrays if numbers.dtype.kind in "iu" and numbers.size]
    return BYTE if integers and all(map(_fits_bytes, integers)) else WHITE


def _fits_bytes(numbers: np.ndarray) -> bool:
    if numbers.dtype.kind == "u" and numbers.dtype.itemsize <= 2:
        return numbers.dtype.itemsize == 1
    return bool(numbers.min() >= 0 and numbers.max() <= BYTE)


def brightest_of(numbers: np.ndarray, assumed: int = WHITE) -> int:
    """The largest of integers of more than 8 bits; 0 for other numbers, and if white is assumed to be 255."""
    wide = numbers.dtype.kind in "iu" and numbers.dtype.itemsize > 1 and assumed > BYTE
    return max(0, int(numbers.max())) if wide else 0


def range_warning(brightest: int, white: int) -> str:
    """A warning if 16-bit pixels exceed white or stay far below it, such as those of 12-bit cameras; else ""."""
    if brightest > white == WHITE:
        return f"pixels reach {brightest:,}: images above {WHITE:,} are left out: set `white`, or divide them"
    if brightest > white:
        return f"16-bit pixels reach {brightest:,}: values above {white:,} (`white`) become white"
    if not 0 < 4 * brightest < white:
        return ""
    likely = max(BYTE, 2 ** brightest.bit_length() - 1)
    return f"16-bit pixels reach only {brightest:,} of {white:,}, so images look dark: set `white`, such as {likely}"


def to_bytes(numbers: np.ndarray, white: int | None = None, assumed: int = WHITE) -> np.ndarray:
    """Numbers of any dtype as bytes, such that `white` and all above becomes 255.

    Args:
        numbers: The numbers, of any shape.
        white: Value of white in numbers of more than 8 bits (None: `assumed` for integers, 1 for floats).
        assumed: Value of white in integers if `white` is None; larger ones are refused. See `assumed_white`.

    Raises:
        Unreadable: If floats are negative, NaN or infinite, or if numbers exceed white and `white` is None.
    """
    kind = numbers.dtype.kind
    if numbers.dtype == np.uint8:
        return numbers
    if kind == "b":
        return numbers.astype(np.uint8) * np.uint8(255)
    if kind not in "iuf":
        raise Unreadable(f"its pixels are {numbers.dtype}, not integers or floats")
    if kind == "f":
        return _floats_to_bytes(numbers.astype(np.float32), white)
    if white is None and (most := int(numbers.max())) > assumed:
        others = "more than 16 bits" if assumed == WHITE else f"although others do not exceed {assumed}"
        raise Unreadable(f"its pixels reach {most:,}, {others}: scale them, or set `white`")
    top = white or assumed  # negative integers are as dark as 0
    return (np.clip(numbers.astype(np.int64), 0, top) * 256 // (top + 1)).astype(np.uint8)


def _floats_to_bytes(numbers: np.ndarray, white: int | None) -> np.ndarray:
    least, most = numbers.min(), numbers.max()
    if not (np.isfinite(least) and np.isfinite(most)):
        raise Unreadable("some of its pixels are NaN or infinite: replace them")
    if least < 0:
        raise Unreadable(
            f"its pixels go down to {least:g}, but must not be negative: remove normalization, or shift them"
        )
    if white is None and most > 1:
        raise Unreadable(f"its pixels are floats up to {most:g}: scale them to 0 … 1, or set `white`")
    return np.rint(np.minimum(numbers / (white or 1), 1) * 255).astype(np.uint8)


def in_number(pixels: np.ndarray, channels: int) -> np.ndarray:
    """C × H × W bytes with the wanted number of channels: grey is repeated, colours become grey.

    Raises:
        Unreadable: If the image has another number of channels.
    """
    found = len(pixels)
    if found == channels:
        return pixels
    if found == 1 and channels == 3:
        return np.broadcast_to(pixels, (3, *pixels.shape[1:]))
    if found == 3 and channels == 1:
        luma = np.tensordot(np.array([0.2989, 0.587, 0.114], np.float32), pixels.astype(np.float32), 1)
        return np.rint(luma).astype(np.uint8)[None]
    raise Unreadable(wrong_number(found, channels))


def wrong_number(found: int, wanted: int) -> str:
    alike = "1 or 3" if wanted in (1, 3) else wanted  # grey and colour become each other
    return f"it has {found} channel{'s' * (found > 1)}, not {alike}"


def as_bands(image: np.ndarray) -> np.ndarray:
    """H × W, H × W × C or C × H × W as C × H × W: the channels are the smaller of the first and last dimension."""
    if image.ndim == 2:
        image = image[None]
    if image.ndim != 3 or not image.size:
        raise Unreadable(f"it has shape {image.shape}, not H × W, H × W × C or C × H × W")
    return _checked(np.moveaxis(image, 2, 0) if image.shape[2] < image.shape[0] else image)


def _read_tiff(file: IO[bytes], header: bool = False) -> np.ndarray:
    """The first image of a TIFF file; with `header` only zeros of its shape, which take no memory."""
    file.seek(0)
    try:
        import tifffile  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        needed = "it has several channels, or floats: pip install tifffile imagecodecs to read it"
        raise Unreadable(needed) from None
    with tifffile.TiffFile(file, name="image.tif") as found:
        image: Any = found.series[0]
        if not _is_one_image(image.axes):  # a stack: its first page, as Pillow reads it
            image = found.pages[0]
        if np.prod(image.shape, dtype=object) > MOST_VALUES:
            raise Unreadable(f"it is too large: {' × '.join(map(str, image.shape))} numbers")
        return _channels_first(_zeros(image.shape, image.dtype) if header else image.asarray(), image.axes)


def _is_one_image(axes: str) -> bool:
    """Whether the dimensions are those of one image: H × W, with one of channels or of a meaning that is not stated."""
    return axes in ("YX", "QYX", "QQQ") or sorted(axes) in (["C", "X", "Y"], ["S", "X", "Y"])


def _channels_first(image: np.ndarray, axes: str) -> np.ndarray:
    place = max(axes.find("C"), axes.find("S"))
    return as_bands(image) if place < 0 else _checked(np.moveaxis(image, place, 0))


def _checked(image: np.ndarray) -> np.ndarray:
    if image.shape[0] > MOST_CHANNELS:
        raise Unreadable(f"it has {image.shape[0]} channels: {MOST_CHANNELS} are the most")
    return image
