"""Views of another dataset as an encoder takes them."""

from dataclasses import replace

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
