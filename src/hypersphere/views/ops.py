"""Image operations with a parameter for each image. Images are float in [0, 1], B × C × H × W.

Saturation, hue and greyscale are defined for three channels, and leave other images as they are.

Each equals torchvision's operation on one image with the same parameter; tests compare them.
"""

import torch
from torch import Tensor

from hypersphere.errors import UserError


def resized_crop(
    images: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor, size: int, flip: Tensor | None = None
) -> Tensor:
    """Crop a box (in pixels), resize it to size × size (bicubic, antialiased), and mirror it if `flip`."""
    rows = _resampling(top, height, images.shape[2], size)
    columns = _resampling(left, width, images.shape[3], size)
    if flip is not None:
        columns = torch.where(flip[:, None, None], columns.flip(1), columns)
    return _separable(images, rows, columns).clamp_(0, 1)


def _resampling(start: Tensor, length: Tensor, pixels: int, size: int) -> Tensor:
    """Weights B × size × pixels; each row is a cubic kernel around an output pixel's centre, inside the box."""
    start, length = start.float()[:, None, None], length.float()[:, None, None]
    scale = length / size
    centre = start + (torch.arange(size, device=start.device)[:, None] + 0.5) * scale
    source = torch.arange(pixels, device=start.device)
    weights = _cubic((source + 0.5 - centre) / scale.clamp(min=1))  # a wider kernel when shrinking
    weights = weights * ((source >= start) & (source < start + length))
    return weights / weights.sum(dim=-1, keepdim=True)


def _cubic(x: Tensor) -> Tensor:
    """Keys' kernel with a = −1/2, zero from |x| = 2 on."""
    x = x.abs()
    inner = (1.5 * x - 2.5) * x * x + 1
    outer = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, inner, torch.where(x < 2, outer, 0))


def _separable(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """rows · image · columnsᵀ, for each channel."""
    wide = torch.matmul(images.flatten(1, 2), columns.mT).unflatten(1, images.shape[1:3])
    return torch.matmul(rows[:, None], wide)


def blur(images: Tensor, sigma: Tensor, kernel: int) -> Tensor:
    """Gaussian blur over `kernel` (odd) pixels, mirrored at the border; an image with sigma 0 is unchanged."""
    rows, columns = (_blurring(sigma, kernel, pixels) for pixels in images.shape[2:])
    return torch.where((sigma > 0)[:, None, None, None], _separable(images, rows, columns), images)


def _blurring(sigma: Tensor, kernel: int, pixels: int) -> Tensor:
    """Weights B × pixels × pixels, mirrored at the border."""
    offset = torch.arange(kernel, device=sigma.device) - kernel // 2
    weights = torch.softmax(-0.5 * (offset / sigma.clamp(min=1e-3)[:, None]) ** 2, dim=1)
    source = torch.arange(pixels, device=sigma.device)[:, None] + offset
    source = (pixels - 1) - ((pixels - 1) - source.abs()).abs()
    folded = torch.zeros(len(sigma), pixels, pixels, device=sigma.device)
    spread = weights[:, None].expand(-1, pixels, -1)
    return folded.scatter_add_(2, source.expand(len(sigma), -1, -1), spread)


def grey(images: Tensor) -> Tensor:
    """Luma, B × 1 × H × W; the mean of the channels of images that are not in colour."""
    if images.shape[1] != 3:
        return images.mean(dim=1, keepdim=True)
    red, green, blue = images.unbind(1)
    return (0.2989 * red + 0.587 * green + 0.114 * blue)[:, None]


def _blend(images: Tensor, with_: Tensor, factor: Tensor) -> Tensor:
    factor = factor[:, None, None, None]
    return (factor * images + (1 - factor) * with_).clamp_(0, 1)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    return (images * factor[:, None, None, None]).clamp_(0, 1)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    return _blend(images, grey(images).mean(dim=(1, 2, 3), keepdim=True), factor)


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    return images if images.shape[1] != 3 else _blend(images, grey(images), factor)


def hue(images: Tensor, turn: Tensor) -> Tensor:
    """Shift the hue of HSV by a share of the full circle."""
    if images.shape[1] != 3:
        return images
    red, green, blue = images.unbind(1)
    value, least = images.amax(dim=1), images.amin(dim=1)
    chroma = value - least
    safe = torch.where(chroma > 0, chroma, 1)
    sixth = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    sixth = sixth + 6 * turn[:, None, None]
    phase = (torch.stack([sixth + n for n in (5, 3, 1)], dim=1)) % 6  # channel n is value − chroma · clamp(…)
    return value[:, None] - chroma[:, None] * torch.minimum(phase, 4 - phase).clamp_(0, 1)


JITTERS = (brightness, contrast, saturation, hue)


def jitter(images: Tensor, factors: Tensor, order: Tensor, apply: Tensor) -> Tensor:
    """The four colour changes by B × 4 factors, in an order for each image (B × 4, permutations of 0 to 3)."""
    images = images.clone()
    for place in range(4):
        for which, change in enumerate(JITTERS):
            chosen = torch.nonzero(apply & (order[:, place] == which)).squeeze(1)
            if len(chosen):
                images[chosen] = change(images[chosen], factors[chosen, which])
    return images


def greyscale(images: Tensor, apply: Tensor) -> Tensor:
    if images.shape[1] != 3:
        return images
    return torch.where(apply[:, None, None, None], grey(images), images)


def solarize(images: Tensor, apply: Tensor) -> Tensor:
    inverted = torch.where(images >= 0.5, 1 - images, images)
    return torch.where(apply[:, None, None, None], inverted, images)


def normalize(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    return (images - _per_channel(mean, images)) / _per_channel(std, images)


def _per_channel(values: tuple[float, ...], images: Tensor) -> Tensor:
    """Filled on the device, because `new_tensor` would wait for it."""
    return torch.stack([images.new_full((1, 1), value) for value in values])


def resize(images: Tensor, height: int, width: int) -> Tensor:
    """Resize images to height × width, bicubic."""
    if images.shape[2:] == (height, width):
        return images
    zero, one = torch.zeros(1, device=images.device), torch.ones(1, device=images.device)
    rows = _resampling(zero, one * images.shape[2], images.shape[2], height)
    columns = _resampling(zero, one * images.shape[3], images.shape[3], width)
    return _separable(images, rows, columns).clamp_(0, 1)


def centre_crop(images: Tensor, side: int) -> Tensor:
    """The central side × side pixels."""
    if min(images.shape[2:]) < side:
        raise UserError(
            f"images of {images.shape[2]} × {images.shape[3]} pixels are smaller than the crop of {side} × {side}"
        )
    top, left = (round((pixels - side) / 2) for pixels in images.shape[2:])
    return images[:, :, top : top + side, left : left + side]
