"""Many small images in one picture, which a page shows one by one as tiles."""

import base64
import io
import math
from typing import Any

import torch
import torch.nn.functional as F
from markupsafe import Markup
from torch import Tensor

LARGEST = 64  # pixels per side; larger images are reduced
EXACT = 32  # pixels per side of images that are shown exactly
ROW = 32  # images in a row of the sheet
QUALITY = 80  # of photographs


def sheet_style(pixels: Tensor, name: str) -> Markup:
    """CSS of a sheet of images.

    Args:
        pixels: uint8 images of shape (N, C, H, W).
        name: CSS class of its tiles.
    """
    pixels = _reduced(pixels)
    n, channels, height, width = pixels.shape
    rows = math.ceil(n / ROW)
    pixels = F.pad(pixels, (0, 0, 0, 0, 0, 0, 0, rows * ROW - n)).view(rows, ROW, channels, height, width)
    sheet = pixels.permute(0, 3, 1, 4, 2).reshape(rows * height, ROW * width, channels)
    rendering = "pixelated" if width < EXACT / 2 else "auto"
    where = f"background-image: url({_sheet_uri(sheet)}); --row-length: {ROW}; --shape: {height / width:g}"
    return Markup(f".{name} {{ {where}; image-rendering: {rendering} }}")


def _reduced(pixels: Tensor) -> Tensor:
    height, width = pixels.shape[2:]
    factor = LARGEST / max(height, width)
    if factor >= 1:
        return pixels
    size = (max(1, round(height * factor)), max(1, round(width * factor)))
    return F.interpolate(pixels.float(), size=size, mode="area").round().to(torch.uint8)


def _sheet_uri(sheet: Tensor) -> str:
    """In grey, or in the 256 colours that fit best, which takes a third of the size; photographs as a JPEG."""
    picture = as_picture(sheet)
    if sheet.shape[1] > EXACT * ROW:
        return _uri(picture, "JPEG", quality=QUALITY, subsampling=0)
    return png_uri(picture if picture.mode == "L" else picture.quantize(256))


def as_picture(pixels: Tensor) -> Any:
    """A PIL image of uint8 pixels H × W × C: the first three channels in colour, or if there are fewer the first."""
    from PIL import Image

    return Image.fromarray((pixels[:, :, 0] if pixels.shape[2] < 3 else pixels[:, :, :3]).contiguous().cpu().numpy())


def png_uri(picture: Any) -> str:
    """A PIL image as the `data:` URI of a PNG."""
    return _uri(picture, "PNG", optimize=True)


def _uri(picture: Any, format: str, **options: Any) -> str:
    file = io.BytesIO()
    picture.save(file, format=format, **options)
    return f"data:image/{format.lower()};base64," + base64.b64encode(file.getvalue()).decode()


def tile_style(index: int) -> str:
    """CSS that selects an image of a sheet."""
    return f"--column: {index % ROW}; --row: {index // ROW}"
