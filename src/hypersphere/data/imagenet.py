"""ImageNet (ILSVRC-2012), as its official archives unpack. Users download it themselves: its licence forbids copies.

A label is the rank of the WordNet id that names the training folder. The validation images, which the paper uses as
its test set, are in the same kind of folders, or all in one folder. The development kit then gives their classes.
"""

from pathlib import Path
from typing import Any

import torch

from hypersphere.data.folder import Listing
from hypersphere.data.wordnet import ids_in, images_in, list_classes
from hypersphere.errors import UserError

CLASSES = 1000
DEVKIT = "ILSVRC2012_devkit_t12"


def list_images(root: Path) -> tuple[Listing, Listing]:
    """(training images, validation images), from `root` or its subfolder imagenet."""
    home = root / "imagenet" if (root / "imagenet").is_dir() else root
    ids = ids_in(home / "train")
    if not ids or not (home / "val").is_dir():
        raise _missing(home)
    if len(ids) != CLASSES:
        raise UserError(
            f"{home / 'train'} has {len(ids)} class folders, not {CLASSES:,}: unpack ILSVRC2012_img_train.tar again"
        )
    in_folders = bool(ids_in(home / "val"))
    test = list_classes(home / "val", ids, ids) if in_folders else _list_flat(home, ids)
    return list_classes(home / "train", ids, ids), test


def _list_flat(home: Path, ids: tuple[str, ...]) -> Listing:
    """Label the images of a flat folder: image n has the class in line n of the ground truth."""
    found, truth = set(images_in(home / "val")), _ground_truth(home)
    names = [f"ILSVRC2012_val_{n:08}.JPEG" for n in range(1, len(truth) + 1)]
    missing = [name for name in names if name not in found]
    if missing:
        count = f"{len(missing):,} of {len(names):,} images"
        raise UserError(
            f"{count} are missing in {home / 'val'}, such as {missing[0]}: unpack ILSVRC2012_img_val.tar again"
        )
    number = {name: n for n, name in enumerate(ids)}
    if not number.keys() >= set(truth):
        raise UserError(
            f"classes of the validation images are missing in {home / 'train'}: unpack ILSVRC2012_img_train.tar again"
        )
    return Listing(tuple(home / "val" / name for name in names), torch.tensor([number[i] for i in truth]), ids)


def _ground_truth(home: Path) -> list[str]:
    """WordNet ids of the validation images; meta.mat maps the kit's own class numbers to them."""
    truth = home / DEVKIT / "data" / "ILSVRC2012_validation_ground_truth.txt"
    table = home / DEVKIT / "data" / "meta.mat"
    if not truth.is_file() or not table.is_file():
        raise _missing(home)
    try:
        synsets = _read_table(table)
        id_of = {int(number): str(name) for number, name in zip(synsets["ILSVRC2012_ID"], synsets["WNID"], strict=True)}
        return [id_of[int(line)] for line in truth.read_text().split()]
    except Exception as error:  # scipy raises many kinds of errors for a damaged file
        raise UserError(f"{truth.parent} is damaged ({type(error).__name__}): unpack {DEVKIT}.tar.gz again") from None


def _read_table(path: Path) -> Any:
    from scipy.io import loadmat

    return loadmat(path, squeeze_me=True)["synsets"]


def _missing(home: Path) -> UserError:
    return UserError(
        f"imagenet is not in {home}: expected train/n01440764/*.JPEG ({CLASSES:,} such folders), and either the same "
        f"folders in val, or val/ILSVRC2012_val_00000001.JPEG … with {DEVKIT}/data; download ILSVRC2012_img_train.tar, "
        f"ILSVRC2012_img_val.tar and {DEVKIT}.tar.gz from https://image-net.org (needs an account) and unpack them "
        "there, or pass their location as `root`"
    )
