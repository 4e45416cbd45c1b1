"""Augmentations of views: their options by dataset, their random draws, and how they are applied."""

import math
from dataclasses import dataclass, replace
from itertools import permutations
from typing import NamedTuple

import torch
from torch import Tensor

from hypersphere.errors import UserError
from hypersphere.util.random_numbers import OPERATIONS, Key, uniforms
from hypersphere.views import ops
from hypersphere.views.randaugment import NUMBERS, randaugment

_TRIES = 10  # random boxes before the largest central one is used, as in torchvision
BOX_DRAWS = 2 * _TRIES + 2
_DRAWS = BOX_DRAWS + 11
LEAST_SIDE = 4  # pixels a side of a view, half of a digit's
_ORDERS = torch.tensor(list(permutations(range(4))))


@dataclass(frozen=True)
class Augmentation:
    """The random changes of one view: probabilities and ranges.

    Args:
        crop: Smallest and largest area of the crop, as shares of the image's area.
        ratio: Smallest and largest ratio of the crop's width to its height.
        flip: Probability of a horizontal flip.
        jitter: Probability of the colour jitter.
        brightness: Largest relative change of brightness.
        contrast: Largest relative change of contrast.
        saturation: Largest relative change of saturation.
        hue: Largest shift of the hue, as a share of the full circle.
        grey: Probability of greyscale.
        blur: Probability of Gaussian blur.
        sigma: Smallest and largest standard deviation of the blur, in pixels.
        solarize: Probability of solarization.
        operations: Number of RandAugment operations.
        size: Side of the view in pixels. Default: that of the pipeline.

    Raises:
        UserError: If `crop` is not a pair of shares in ascending order.

    Example:
        >>> hs.views.Augmentation(crop=(0.2, 1.0), blur=0.5).flip
        0.5
    """

    crop: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    jitter: float = 0.8
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.2
    hue: float = 0.1
    grey: float = 0.2
    blur: float = 0.0
    sigma: tuple[float, float] = (0.1, 2.0)
    solarize: float = 0.0
    operations: int = 0
    size: int | None = None

    def __post_init__(self) -> None:
        if len(self.crop) != 2 or not 0 < self.crop[0] <= self.crop[1] <= 1:
            raise UserError(f"`crop` must be two shares, the smaller first, above 0 and at most 1, got {self.crop}")


@dataclass(frozen=True)
class ViewPipeline:
    """How images of a dataset become input of an encoder: views to train with, and one crop to evaluate.

    Args:
        size: Side of the input in pixels.
        mean: Mean of each channel, for the normalization.
        std: Standard deviation of each channel.
        augmentations: One augmentation per view; the first two have the full size.
        probe: Augmentation for training the linear probe: crop and flip only.
        resize: Shorter side in pixels before the centre crop of evaluation. Default: not resized.
        crop: Side in pixels of the centre crop of evaluation. Default: the whole image.

    Raises:
        UserError: If `mean` and `std` are not of the same number of channels, or a size is not a positive int.

    Example:
        >>> how = hs.views.Augmentation()
        >>> pipeline = hs.views.ViewPipeline(32, mean=(0.5,), std=(0.25,), augmentations=(how, how), probe=how)
        >>> pipeline.blur_kernel
        3
    """

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentations: tuple[Augmentation, ...]
    probe: Augmentation
    resize: int | None = None
    crop: int | None = None

    def __post_init__(self) -> None:
        if not len(self.mean) == len(self.std) > 0:
            raise UserError(f"`mean` and `std` must have a number for each channel, got {self.mean} and {self.std}")
        for name in ("size", "resize", "crop"):
            pixels = getattr(self, name)
            if pixels is not None and not (isinstance(pixels, int) and pixels > 0):
                raise UserError(f"`{name}` must be a whole number of pixels, got {pixels}")

    def size_of(self, how: Augmentation) -> int:
        """Side of a view in pixels."""
        return self.size if how.size is None else how.size

    @property
    def blur_kernel(self) -> int:
        """Side of the blur kernel in pixels: 23 for 224."""
        return max(3, self.size // 20 * 2 + 1)


class Late(NamedTuple):
    """Random draws of B images for the changes after crop, jitter and blur."""

    grey: Tensor
    solarize: Tensor
    operations: Tensor  # B × operations × NUMBERS


class Draw(NamedTuple):
    """Random draws of B images."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    flip: Tensor
    jitter: Tensor
    factors: Tensor  # B × 4: brightness, contrast, saturation, hue
    order: Tensor  # B × 4
    sigma: Tensor  # 0 for no blur
    late: Late


def draw(how: Augmentation, shape: tuple[int, int], sample: Tensor, key: Key, *, view: int) -> Draw:
    """Draw the parameters of one view of each sample: a function of key, sample and view only."""
    u = uniforms(_DRAWS, sample, view=view, **key._asdict())
    box, rest = u[:, :BOX_DRAWS], u[:, BOX_DRAWS:].unbind(1)
    strengths = (how.brightness, how.contrast, how.saturation)
    factors = [1 + s * (2 * r - 1) for s, r in zip(strengths, rest[2:5], strict=True)] + [how.hue * (2 * rest[5] - 1)]
    low, high = how.sigma
    return Draw(
        *box_of(box, how, *shape),
        flip=rest[0] < how.flip,
        jitter=rest[1] < how.jitter,
        factors=torch.stack(factors, dim=1),
        order=_ORDERS.to(u.device)[(rest[6] * len(_ORDERS)).long()],
        sigma=torch.where(rest[8] < how.blur, low + (high - low) * rest[9], 0),
        late=_late(u, how, sample, key, view),
    )


def draw_late(how: Augmentation, sample: Tensor, key: Key, *, view: int) -> Late:
    """The part `late` of `draw`."""
    return _late(uniforms(_DRAWS, sample, view=view, **key._asdict()), how, sample, key, view)


def _late(u: Tensor, how: Augmentation, sample: Tensor, key: Key, view: int) -> Late:
    count, further = how.operations * NUMBERS, u[:, :0]
    if count:
        further = uniforms(count, sample, view=view, **key._replace(stream=OPERATIONS)._asdict())
    grey, solarize = u[:, BOX_DRAWS + 7] < how.grey, u[:, BOX_DRAWS + 10] < how.solarize
    return Late(grey, solarize, further.unflatten(1, (how.operations, NUMBERS)))


def box_of(u: Tensor, how: Augmentation, height: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The first of ten random boxes that fits, otherwise the largest central box with an allowed ratio."""
    area = height * width * (how.crop[0] + (how.crop[1] - how.crop[0]) * u[:, 0 : 2 * _TRIES : 2])
    log_low, log_high = math.log(how.ratio[0]), math.log(how.ratio[1])
    ratio = (log_low + (log_high - log_low) * u[:, 1 : 2 * _TRIES : 2]).exp()
    w, h = ((area * ratio).sqrt() + 0.5).floor(), ((area / ratio).sqrt() + 0.5).floor()
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first = fits.to(torch.uint8).argmax(dim=1, keepdim=True)
    whole_h, whole_w = whole_box(how, height, width)
    found = fits.any(dim=1)
    h = torch.where(found, h.gather(1, first)[:, 0], whole_h)
    w = torch.where(found, w.gather(1, first)[:, 0], whole_w)
    top = torch.where(found, (u[:, -2] * (height - h + 1)).floor(), (height - whole_h) // 2)
    left = torch.where(found, (u[:, -1] * (width - w + 1)).floor(), (width - whole_w) // 2)
    return top, left, h, w


def whole_box(how: Augmentation, height: int, width: int) -> tuple[int, int]:
    """Height and width of the largest box with an allowed ratio."""
    return min(height, round(width / how.ratio[0])), min(width, round(height * how.ratio[1]))


def apply(images: Tensor, d: Draw, how: Augmentation, recipe: ViewPipeline) -> Tensor:
    """One normalized view of images given as bytes, by their draws."""
    x = ops.resized_crop(images.float() / 255, d.top, d.left, d.height, d.width, recipe.size_of(how), d.flip)
    return coloured(x, d, how, recipe)


def coloured(x: Tensor, d: Draw, how: Augmentation, recipe: ViewPipeline) -> Tensor:
    """The changes after the crop."""
    if how.jitter:
        x = ops.jitter(x, d.factors, d.order, d.jitter)
    if how.grey and not how.operations:
        x = ops.greyscale(x, d.late.grey)
    if how.blur:
        x = ops.blur(x, d.sigma, recipe.blur_kernel)
    return late_changes(x, d.late, how, recipe)


def late_changes(x: Tensor, d: Late, how: Augmentation, recipe: ViewPipeline) -> Tensor:
    """The changes after blur."""
    if how.operations:  # they change colours, so grey comes after them
        x = ops.greyscale(randaugment(x, d.operations, recipe.mean), d.grey)
    if how.solarize:
        x = ops.solarize(x, d.solarize)
    return ops.normalize(x, recipe.mean, recipe.std)


def check_images(images: Tensor, recipe: ViewPipeline) -> None:
    """Check dtype and shape, without waiting for a GPU."""
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != len(recipe.mean):
        wanted = f"bytes (uint8, 0 to 255) of shape N × {len(recipe.mean)} × H × W"
        raise UserError(f"images must be {wanted}, got {images.dtype} of shape {tuple(images.shape)}")


def evaluation_view(images: Tensor, recipe: ViewPipeline) -> Tensor:
    """Prepare images for evaluation: resize, centre crop, normalize.

    Args:
        images: Images of shape (N, C, H, W), uint8.
        recipe: The pipeline of the dataset.

    Returns:
        Input for an encoder of shape (N, C, size, size), float32, on the device of the images.

    Raises:
        UserError: If the images are not bytes of that shape, or are smaller than the crop.

    Example:
        >>> images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
        >>> hs.views.evaluation_view(images, hs.views.PIPELINES["cifar10"]).shape
        torch.Size([2, 3, 32, 32])
    """
    check_images(images, recipe)
    x = images.float() / 255
    height, width = x.shape[2:]
    if recipe.resize is not None:
        short = min(height, width)  # the long side is rounded down, as in torchvision
        x = ops.resize(x, recipe.resize * height // short, recipe.resize * width // short)
    if recipe.crop is not None:
        x = ops.centre_crop(x, recipe.crop)
    return ops.normalize(ops.resize(x, recipe.size, recipe.size), recipe.mean, recipe.std)


def with_small_crops(recipe: ViewPipeline, count: int, side: float = 0.5, area: tuple[float, ...] = ()) -> ViewPipeline:
    """Add small views to a pipeline: multi-crop (Caron et al., 2020).

    Args:
        recipe: The pipeline to extend.
        count: Number of small views.
        side: Side of the small views as a share of the full side. Published for ImageNet: 96 of 224 pixels, 0.43.
        area: Smallest and largest area of the crop, as shares of the image's area. Published for ImageNet: 5 to 14 %.
            Default: from half the smallest area of a large view, to that area or 0.25.

    Returns:
        A pipeline with `count` more augmentations.

    Raises:
        UserError: If the small views have too few pixels.

    Example:
        >>> pipeline = hs.views.with_small_crops(hs.views.PIPELINES["imagenet"], count=6)
        >>> [pipeline.size_of(how) for how in pipeline.augmentations]
        [224, 224, 112, 112, 112, 112, 112, 112]
    """
    large = recipe.augmentations[0]
    low, high = area or (large.crop[0] / 2, max(large.crop[0], 0.25))
    size, least = int(recipe.size * side), max(LEAST_SIDE, recipe.blur_kernel // 2 + 1)  # enough for blur to mirror
    if count and size < least:
        small_views = f"views of {size} of {recipe.size} pixels a side"
        raise UserError(f"`small_side` {side} makes {small_views}: they must have {least} or more")
    small = replace(large, crop=(low, high), blur=min(large.blur, 0.5), size=size)
    return replace(recipe, augmentations=recipe.augmentations + (small,) * count)


def with_views(recipe: ViewPipeline, count: int) -> ViewPipeline:
    """Change the number of views of a pipeline: all of full size, by its first two augmentations in turn.

    Args:
        recipe: The pipeline to change.
        count: Number of views.

    Returns:
        A pipeline with `count` augmentations.

    Example:
        >>> len(hs.views.with_views(hs.views.PIPELINES["cifar10"], count=4).augmentations)
        4
    """
    large = recipe.augmentations[:2]
    return replace(recipe, augmentations=tuple(large[view % len(large)] for view in range(count)))


_CIFAR = Augmentation()
_PLAIN = Augmentation(jitter=0, grey=0)
_BYOL = Augmentation(blur=1.0)
_SIMCLR = Augmentation(brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, blur=0.5)
# For both views, by the method that published them for ImageNet; InfoMin's (Tian et al., 2020) without RandAugment.
POLICIES = {
    "moco": Augmentation(crop=(0.2, 1.0), saturation=0.4, blur=0.5),
    "simclr": _SIMCLR,
    "infomin": replace(_SIMCLR, crop=(0.2, 1.0)),
}
_DIGITS = Augmentation(crop=(0.5, 1.0), flip=0.0, brightness=0.2, contrast=0.2, saturation=0.0, hue=0.0, grey=0.0)


def folder_pipeline(size: int) -> ViewPipeline:
    """The pipeline for a folder of images of any kind: that of ImageNet, without blur below 64 pixels.

    Args:
        size: Side of the input in pixels.

    Returns:
        A pipeline for three channels.

    Example:
        >>> hs.views.folder_pipeline(96).resize
        110
    """
    hows = (_BYOL, replace(_BYOL, blur=0.1, solarize=0.2)) if size >= 64 else (_CIFAR, _CIFAR)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    return ViewPipeline(size, mean, std, hows, _PLAIN, resize=round(size * 8 / 7), crop=size)


# by dataset
PIPELINES: dict[str, ViewPipeline] = {
    "cifar10": ViewPipeline(32, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), (_CIFAR, _CIFAR), _PLAIN, crop=28),
    "cifar100": ViewPipeline(32, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762), (_CIFAR, _CIFAR), _PLAIN, crop=28),
    "stl10": ViewPipeline(
        64, (0.4467, 0.4398, 0.4066), (0.2603, 0.2566, 0.2713), (_CIFAR, _CIFAR), _PLAIN, resize=64, crop=56
    ),
    "imagenet": ViewPipeline(
        224,
        (0.485, 0.456, 0.406),
        (0.229, 0.224, 0.225),
        (_BYOL, replace(_BYOL, blur=0.1, solarize=0.2)),
        _PLAIN,
        resize=256,
        crop=224,
    ),
    "digits": ViewPipeline(8, (0.3053,), (0.3760,), (_DIGITS, _DIGITS), replace(_DIGITS, jitter=0)),
}
