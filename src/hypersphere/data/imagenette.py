"""Imagenette: ten easily distinguished classes of ImageNet, free to download in three sizes."""

from pathlib import Path

from hypersphere.data.fetch import Archive, fetch_archive
from hypersphere.data.folder import Listing
from hypersphere.data.wordnet import list_classes

CLASSES = {
    "n01440764": "tench",
    "n02102040": "English springer",
    "n02979186": "cassette player",
    "n03000684": "chain saw",
    "n03028079": "church",
    "n03394916": "French horn",
    "n03417042": "garbage truck",
    "n03425413": "gas pump",
    "n03445777": "golf ball",
    "n03888257": "parachute",
}


def _archive(name: str, folder: str, md5: str) -> Archive:
    return Archive(name, f"https://s3.amazonaws.com/fast-ai-imageclas/{folder}.tgz", md5, f"{folder}/val")


SIDE_160 = _archive("imagenette-160", "imagenette2-160", "e793b78cc4c9e9a4ccc0c1155377a412")
SIDE_320 = _archive("imagenette", "imagenette2-320", "3df6f0d01a2c9592104656642f5e78a3")
FULL = _archive("imagenette-full", "imagenette2", "fe2fc210e6bb7c5664d602c3cd71e612")


def list_images(archive: Archive, root: Path) -> tuple[Listing, Listing]:
    """(training images, validation images); downloads them first if they are not in `root`."""
    if not (root / archive.holds).is_dir():
        fetch_archive(archive, root)
    parts = (root / archive.folder / part for part in ("train", "val"))
    train, test = (list_classes(part, tuple(CLASSES), tuple(CLASSES.values())) for part in parts)
    return train, test
