"""What `--data` and the options beside it say about the images of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hypersphere.data.pixel_cache import Place
from hypersphere.util.cores import MOST_PROCESSES
from hypersphere.util.option_fields import check, option

Holdout = Literal["validation", "test"]


@dataclass(frozen=True)
class DataSpec:
    """Options that concern the images, for `Dataset.resolve`. A `Config` is a `DataSpec`, too.

    Attributes:
        data: Name of a dataset, path of images of any kind, or `package.module:function`.
        holdout: "validation" holds out part of the training images, "test" the test set.
        labels: CSV file with the labels of a folder's images.
        white: Value of white in images of more than 8 bits (None: 65535, and 1 for floats).
        mean: Mean of each channel of images of your own; its length is the number of channels (none: three channels,
            normalized as ImageNet).
        std: Standard deviation of each channel.
        frames: Frames of each video.
        size: Side of the encoder's input in pixels (None: 224 for folders and arrays; `hs.pretrain` chooses it from
            the images).
        root: Folder of the files of a named dataset, or the new location of a folder that has moved.
        workers: Number of worker processes that read images (None: chosen from the number of cores).
        cache: Where decoded image files are kept: "gpu", "memory", "disk", "auto" or "off".

    Example:
        >>> hs.data.DataSpec("digits").holdout
        'validation'
    """

    data: str = "cifar10"
    """Dataset: a name (`hypersphere data` lists them); a folder of images or videos; a .zip, .tar, .parquet, .npz or
    .npy file; or a function that makes them, as package.module:function."""
    holdout: Holdout = "validation"
    """Images to measure accuracy on: a part of the training set, to choose options by, or the test set."""
    labels: str | None = None
    """CSV file with the labels of images: columns path (or filename, image_id, …), relative to the folder, and label
    (or class, target, …); optionally split (train, val, test) and group, such as a patient, which is held out as a
    whole (None: names of subfolders)."""
    white: int | None = option(None, least=255, most=65535)
    """Value of white in images of more than 8 bits, such as 4095 for 12-bit data; larger values are white, too (None:
    65535, and 1 for floats)."""
    mean: tuple[float, ...] = ()
    """Mean of each channel, from 0 to 1, for the normalization of your own images (none: measured; for colour images
    that of ImageNet)."""
    std: tuple[float, ...] = ()
    """Standard deviation of each channel, as `mean`."""
    frames: int = option(16, least=1, most=10_000)
    """Frames of each video, evenly spaced."""
    size: int | None = option(None, least=8, most=1024)
    """Side of the encoder's input in pixels, for images of your own (None: by their size)."""
    root: Path | None = option(None, hashed=False)
    """Folder of the data files (None: $HYPERSPHERE_DATA, or ~/.cache/hypersphere/data). With --resume of a run on a
    folder of images that has moved: its new location."""
    workers: int | None = option(None, least=0, most=MOST_PROCESSES, hashed=False)
    """Processes that decode image files (None: one for each core with a GPU, else none)."""
    cache: Place = option("auto", hashed=False)
    """Where decoded image files are kept, so that each is decoded once: in GPU memory, in memory, or on disk, where
    later runs find them ($HYPERSPHERE_CACHE, or ~/.cache/hypersphere/decoded). auto: the first with enough room; off:
    files are decoded in every epoch."""

    def __post_init__(self) -> None:
        same = len(self.mean) == len(self.std) and all(std > 0 for std in self.std)
        check(self, "std", same, f"above 0, and as many numbers as `mean` {self.mean}")
