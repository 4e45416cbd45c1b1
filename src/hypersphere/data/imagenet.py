"""ImageNet (ILSVRC-2012), as the files of its owners unpack: for those who have them, since nobody may pass them on.

Labels are numbers in the order of the sorted WordNet ids, which the folders of the training set are named by. The
validation images, ImageNet's test set to the paper, lie in such folders too, or all in one, where the development kit
tells their classes.
"""

from pathlib import Path
from typing import Any

import torch

from hypersphere.data.folder import Listing
from hypersphere.data.wordnet import ids_in, jpegs_in, list_classes
from hypersphere.errors import UserError

CLASSES = 1000
DEVKIT = "ILSVRC2012_devkit_t12"


def list_images(root: Path) -> tuple[Listing, Listing]:
    """(training images, validation images), in `root` or its folder imagenet."""
    home = root / "imagenet" if (root / "imagenet").is_dir() else root
    ids = ids_in(home / "train")
    if not ids or not (home / "val").is_dir():
        raise _missing(home)
    if len(ids) != CLASSES:
        raise UserError(f"{home / 'train'} has folders of {len(ids)} classes, not of {CLASSES:,}: unpack it again")
    in_folders = bool(ids_in(home / "val"))
    test = list_classes(home / "val", ids, ids) if in_folders else _list_flat(home, ids)
    return list_classes(home / "train", ids, ids), test


def _list_flat(home: Path, ids: tuple[str, ...]) -> Listing:
    """Image n of the folder has the class of line n of the ground truth."""
    found, truth = set(jpegs_in(home / "val")), _ground_truth(home)
    names = [f"ILSVRC2012_val_{n:08}.JPEG" for n in range(1, len(truth) + 1)]
    lacking = [name for name in names if name not in found]
    if lacking:
        count = f"{len(lacking):,} of {len(names):,} images"
        raise UserError(f"{home / 'val'} lacks {count}, such as {lacking[0]}: unpack ILSVRC2012_img_val.tar again")
    number = {name: n for n, name in enumerate(ids)}
    if not number.keys() >= set(truth):
        raise UserError(
            f"{home / 'train'} lacks classes of the validation images: unpack ILSVRC2012_img_train.tar again"
        )
    return Listing(tuple(home / "val" / name for name in names), torch.tensor([number[i] for i in truth]), ids)


def _ground_truth(home: Path) -> list[str]:
    """WordNet ids of the validation images: the file has numbers of the kit's own, which its table explains."""
    truth = home / DEVKIT / "data" / "ILSVRC2012_validation_ground_truth.txt"
    table = home / DEVKIT / "data" / "meta.mat"
    if not truth.is_file() or not table.is_file():
        raise _missing(home)
    try:
        synsets = _read_table(table)
        id_of = {int(number): str(name) for number, name in zip(synsets["ILSVRC2012_ID"], synsets["WNID"], strict=True)}
        return [id_of[int(line)] for line in truth.read_text().split()]
    except Exception as error:  # scipy raises many kinds for what is no such file
        raise UserError(f"{truth.parent} is damaged ({type(error).__name__}): unpack {DEVKIT}.tar.gz again") from None


def _read_table(path: Path) -> Any:
    from scipy.io import loadmat

    return loadmat(path, squeeze_me=True)["synsets"]


def _missing(home: Path) -> UserError:
    return UserError(
        f"imagenet is not in {home}: looked for train/n01440764/*.JPEG ({CLASSES:,} such folders), and the same in val "
        f"or val/ILSVRC2012_val_00000001.JPEG … with {DEVKIT}/data; get ILSVRC2012_img_train.tar, "
        f"ILSVRC2012_img_val.tar and {DEVKIT}.tar.gz from https://image-net.org, with an account, and unpack them "
        "there, or say with `root` where they are"
    )
