"""Images of another dataset as an encoder takes them."""

from dataclasses import replace

from hypersphere.data import Images
from hypersphere.views import ViewPipeline


def transfer_views(theirs: ViewPipeline, own: ViewPipeline) -> ViewPipeline:
    """The views of another dataset for an encoder: its crops, with the size and normalization of the encoder.

    Args:
        theirs: Views of the other dataset.
        own: Views of the dataset that the encoder was trained on.

    Returns:
        Views of the other dataset that fit the encoder.

    Example:
        >>> from hypersphere.views import PIPELINES
        >>> transfer_views(PIPELINES["cifar100"], PIPELINES["digits"]).size
        8
    """
    return replace(theirs, size=own.size, mean=own.mean, std=own.std)


def in_channels(images: Images, channels: int) -> Images:
    """Images with the number of channels that an encoder takes: grey ones are repeated, colour ones made grey.

    Args:
        images: Images of shape (N, C, H, W).
        channels: Number of channels: C, or 1 or 3 if C is 1 or 3.

    Returns:
        Images of shape (N, channels, H, W); `images` itself if nothing changes.

    Raises:
        UserError: If images have more channels, which cannot be converted.

    Example:
        >>> import torch
        >>> import hypersphere as hs
        >>> images = hs.data.Images(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(2), ("a",))
        >>> hs.evaluate.in_channels(images, 1).pixels.shape
        torch.Size([2, 1, 8, 8])
    """
    return images.in_channels(channels)
