"""RandAugment (Cubuk et al., 2020) as in InfoMin: some of 15 operations, each with probability ½, near full strength.

Images are float in [0, 1], B × C × H × W; each has a level in [0, 1] and a sign. Each operation equals torchvision's or
PIL's on one image; tests compare them. InfoMin differs in two ways: its geometric operations are bilinear or bicubic at
random (here bilinear), and it rounds images to bytes after each operation.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from hypersphere.views import ops

NUMBERS = 5  # random numbers per operation: which, whether, two for its level, its sign
DEVIATION = 0.05  # standard deviation of the level, around 1
SMALL = 3 * 64 * 64  # values of a small image


def _bytes(images: Tensor) -> Tensor:
    return (images * 255).round()


def _each(values: Tensor) -> Tensor:
    return values[:, None, None, None]


def _filled(values: Sequence[float], like: Tensor) -> Tensor:
    """A tensor filled on the device, because `new_tensor` would wait for it."""
    return torch.stack([like.new_full((), value) for value in values])


def autocontrast(images: Tensor) -> Tensor:
    """Stretch each channel to 0 … 1; a constant channel is unchanged."""
    least, span = images.amin(dim=(2, 3), keepdim=True), images.amax(dim=(2, 3), keepdim=True)
    span = span - least
    return torch.where(span > 0, (images - least) / torch.where(span > 0, span, 1), images)


def equalize(images: Tensor) -> Tensor:
    """Equalize the histogram of each channel, by PIL's table."""
    found = _bytes(images).long().clamp(0, 255).flatten(2)  # stay inside the table whatever the images hold
    counts = torch.zeros(*found.shape[:2], 256, dtype=torch.long, device=images.device)
    counts.scatter_add_(2, found, torch.ones_like(found))
    last = found.amax(dim=2, keepdim=True)
    step = (found.shape[2] - counts.gather(2, last)) // 255
    before = counts.cumsum(dim=2) - counts
    table = ((before + step // 2) // step.clamp(min=1)).clamp(max=255)
    spread = torch.where(step > 0, table.gather(2, found), found)
    return (spread / 255).view_as(images)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest bits of each byte."""
    width = 2.0 ** (8 - _each(bits))
    return (_bytes(images) / width).floor() * width / 255


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert values from a threshold (of 255) on."""
    return torch.where(images >= _each(threshold) / 255, 1 - images, images)


def solarize_add(images: Tensor, add: Tensor) -> Tensor:
    """Raise dark values by an amount (of 255)."""
    return torch.where(images < 128 / 255, (images + _each(add) / 255).clamp(max=1), images)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the smoothed image, except at the border."""
    channels, kernel = images.shape[1], images.new_full((3, 3), 1 / 13)
    kernel[1, 1].fill_(5 / 13)  # an assignment would wait for the device
    smooth = images.clone()
    smooth[:, :, 1:-1, 1:-1] = F.conv2d(images, kernel.expand(channels, 1, 3, 3), groups=channels)
    return (_each(factor) * images + (1 - _each(factor)) * smooth).clamp(0, 1)


def affine(images: Tensor, matrix: Tensor, fill: Tensor) -> Tensor:
    """Move pixels, bilinear: (x, y) comes from `matrix` · (x, y, 1), in pixels from the top left corner.

    `matrix` is B × 2 × 3. Uncovered pixels get `fill`, a value for each channel.
    """
    height, width = images.shape[2:]
    y, x = torch.meshgrid(
        torch.arange(height, device=images.device) + 0.5, torch.arange(width, device=images.device) + 0.5, indexing="ij"
    )
    places = torch.stack([x, y, torch.ones_like(x)], dim=-1)
    source = torch.einsum("hwk,bjk->bhwj", places, matrix)
    grid = 2 * source / _filled([width, height], source) - 1
    inside = torch.ones_like(images[:, :1])
    found = F.grid_sample(torch.cat([images, inside], dim=1), grid, align_corners=False)
    pixels, share = found[:, :-1], found[:, -1:]
    return pixels + (1 - share) * fill.view(1, -1, 1, 1)


def _matrix(level: Tensor, **entries: Tensor) -> Tensor:
    """The identity with some entries replaced: a, b, c of x and d, e, f of y, for each image."""
    one, zero = torch.ones_like(level), torch.zeros_like(level)
    a, b, c, d, e, f = ({"a": one, "b": zero, "c": zero, "d": zero, "e": one, "f": zero} | entries).values()
    return torch.stack([a, b, c, d, e, f], dim=1).view(-1, 2, 3)


def rotation(degrees: Tensor, height: int, width: int) -> Tensor:
    """Counter-clockwise around the centre."""
    cos, sin = torch.cos(degrees.deg2rad()), torch.sin(degrees.deg2rad())
    x, y = width / 2, height / 2
    return _matrix(degrees, a=cos, b=-sin, c=x - cos * x + sin * y, d=sin, e=cos, f=y - sin * x - cos * y)


# signed level, height, width → matrix of `affine`; strengths as published
MATRICES: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "rotate": lambda signed, height, width: rotation(30 * signed, height, width),
    "shear_x": lambda signed, height, width: _matrix(signed, b=0.3 * signed),
    "shear_y": lambda signed, height, width: _matrix(signed, d=0.3 * signed),
    "translate_x": lambda signed, height, width: _matrix(signed, c=0.45 * signed * width),
    "translate_y": lambda signed, height, width: _matrix(signed, f=0.45 * signed * height),
}
# images, level → images
CHANGES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "autocontrast": lambda x, level: autocontrast(x),
    "equalize": lambda x, level: equalize(x),
    "invert": lambda x, level: 1 - x,
    "posterize": lambda x, level: posterize(x, (4 * level).floor()),
    "solarize": lambda x, level: solarize(x, (256 * level).floor()),
    "solarize_add": lambda x, level: solarize_add(x, (110 * level).floor()),
    "colour": lambda x, level: ops.saturation(x, 0.1 + 1.8 * level),
    "contrast": lambda x, level: ops.contrast(x, 0.1 + 1.8 * level),
    "brightness": lambda x, level: ops.brightness(x, 0.1 + 1.8 * level),
    "sharpness": lambda x, level: sharpness(x, 0.1 + 1.8 * level),
}
NAMES = ("autocontrast", "equalize", "invert", "rotate", "posterize", "solarize", "solarize_add", "colour", "contrast",
         "brightness", "sharpness", "shear_x", "shear_y", "translate_x", "translate_y")  # fmt: skip


def operation(name: str, images: Tensor, level: Tensor, signed: Tensor, fill: Tensor) -> Tensor:
    if name in CHANGES:
        return CHANGES[name](images, level)
    return affine(images, MATRICES[name](signed, *images.shape[2:]), fill)


def randaugment(images: Tensor, u: Tensor, mean: tuple[float, ...]) -> Tensor:
    """Apply operations one after the other, by B × operations × NUMBERS uniform numbers; `mean` fills gaps."""
    which = torch.where(u[:, :, 1] < 0.5, (u[:, :, 0] * len(NAMES)).long(), -1)
    normal = (-2 * torch.log1p(-u[:, :, 2])).sqrt() * torch.cos(2 * torch.pi * u[:, :, 3])
    level = (1 + DEVIATION * normal).clamp(0, 1)
    signed = torch.where(u[:, :, 4] < 0.5, -level, level)
    change = selected if images.is_cuda and images.shape[1:].numel() <= SMALL else chosen
    fill = _filled(mean, images)
    for turn in range(u.shape[1]):
        images = change(images, which[:, turn], level[:, turn], signed[:, turn], fill)
    return images


def chosen(images: Tensor, which: Tensor, level: Tensor, signed: Tensor, fill: Tensor) -> Tensor:
    """Apply each operation to the images it was drawn for. Waits for the device only to count them."""
    changed, order = images.clone(), which.argsort(stable=True)
    numbers = torch.arange(-1, len(NAMES), device=which.device)
    counts = (which[:, None] == numbers).sum(0).tolist()
    for name, of in zip(NAMES, order.split(counts)[1:], strict=True):
        if len(of):
            changed[of] = operation(name, images[of], level[of], signed[of], fill)
    return changed


def selected(images: Tensor, which: Tensor, level: Tensor, signed: Tensor, fill: Tensor) -> Tensor:
    """Apply every operation to all images and select. Does not wait for the device: faster for small images."""
    changed, moved, matrix = images, torch.zeros_like(which, dtype=torch.bool), _matrix(level)
    for number, name in enumerate(NAMES):
        drawn = which == number
        if name in CHANGES:
            changed = torch.where(_each(drawn), CHANGES[name](images, level), changed)
        else:
            moved = moved | drawn
            matrix = torch.where(drawn[:, None, None], MATRICES[name](signed, *images.shape[2:]), matrix)
    return torch.where(_each(moved), affine(images, matrix, fill), changed)
