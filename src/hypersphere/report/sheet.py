"""Many small images in one PNG, and each as a tile of a page."""

import base64
import io
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hypersphere.report.markup import Markup, element

LARGEST = 32  # pixels a side; larger images are shrunk to it
ROW = 32  # images in a row of the sheet


def sheet_style(pixels: Tensor, name: str) -> str:
    """CSS of the tiles that show one of these N × C × H × W images."""
    pixels = _small(pixels)
    n, channels, height, width = pixels.shape
    rows = math.ceil(n / ROW)
    pixels = F.pad(pixels, (0, 0, 0, 0, 0, 0, 0, rows * ROW - n)).view(rows, ROW, channels, height, width)
    sheet = pixels.permute(0, 3, 1, 4, 2).reshape(rows * height, ROW * width, channels)
    rendering = "pixelated" if width < LARGEST / 2 else "auto"
    where = f"background-image: url({_sheet_uri(sheet)}); --row-length: {ROW}; --shape: {height / width:g}"
    return f".{name} {{ {where}; image-rendering: {rendering} }}\n"


def _small(pixels: Tensor) -> Tensor:
    height, width = pixels.shape[2:]
    shrink = LARGEST / max(height, width)
    if shrink >= 1:
        return pixels
    size = (max(1, round(height * shrink)), max(1, round(width * shrink)))
    return F.interpolate(pixels.float(), size=size, mode="area").round().to(torch.uint8)


def _sheet_uri(sheet: Tensor) -> str:
    """In grey, or in the 256 colours that fit best: a third of the size of all colours."""
    from PIL import Image

    if sheet.shape[2] == 1:
        return png_uri(Image.fromarray(sheet[:, :, 0].contiguous().numpy()))
    return png_uri(Image.fromarray(sheet[:, :, :3].contiguous().numpy()).quantize(256))


def png_uri(picture: Any) -> str:
    file = io.BytesIO()
    picture.save(file, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def tile(sheet: str, index: int, label: str, kind: str) -> Markup:
    place = f"--column: {index % ROW}; --row: {index // ROW}"
    return element("span", class_=f"tile {sheet} {kind}", style=place, role="img", aria_label=label, title=label)
