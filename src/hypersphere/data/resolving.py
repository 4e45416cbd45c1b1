"""Resolve the option `data` to a dataset class. This is the only place that distinguishes kinds of data."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypersphere.data.compressed_tar import OPENERS
from hypersphere.data.dataset import Dataset, UnknownData
from hypersphere.data.file_datasets import (
    CompressedTarDataset,
    FolderDataset,
    ShardDataset,
    VideoDataset,
    ZipDataset,
)
from hypersphere.data.folder import is_image
from hypersphere.data.named_datasets import FILE_SOURCES, SOURCES, NamedFiles, NamedImages
from hypersphere.data.object_datasets import (
    IN_MEMORY,
    ObjectDataset,
    arrays_of_file,
    is_object,
    made_by,
    remember_object,
    remembered,
)
from hypersphere.data.options import DataSpec
from hypersphere.data.parquet_images import has_images, read_parquet
from hypersphere.data.videos import is_video
from hypersphere.errors import UserError, did_you_mean
from hypersphere.util.optional import require
from hypersphere.util.references import is_reference, reference_to

ARRAYS = (".npz", ".npy")
KINDS = (
    "a name, a folder, a .zip, .tar, .parquet or .npz file, arrays, a dataset object, or a function at the top of a "
    "module that returns them"
)
SAVED_BY_HUGGING_FACE = ({"dataset_dict.json"}, {"state.json", "dataset_info.json"})  # files of save_to_disk

DEFAULTS = DataSpec("")


def resolve(options: DataSpec) -> Dataset:
    """See `Dataset.resolve`."""
    data = options.data
    if data in SOURCES:
        return NamedImages(data, options)
    if data in FILE_SOURCES:
        return NamedFiles(data, options)
    if data.startswith(IN_MEMORY):
        return remembered(data, options)
    path = os.path.abspath(os.path.expanduser(data))
    is_folder = os.path.isdir(path)
    low = data.lower()
    if data.endswith(ARRAYS) and not is_folder:
        return ObjectDataset(path, options, lambda: arrays_of_file(Path(path)))
    if is_reference(data) and not is_folder and not os.path.exists(path):
        return ObjectDataset(data, options, lambda: made_by(data))
    if data.endswith(".tar"):
        return ShardDataset(data if "://" in data else path, options)
    if is_folder:
        return _folder(path, options)
    if low.endswith(".zip"):
        return ZipDataset(path, options)
    if low.endswith(tuple(OPENERS)):
        return CompressedTarDataset(path, options)
    if low.endswith(".parquet"):
        return ObjectDataset(path, options, lambda: read_parquet(path))
    if is_video(path) and os.path.isfile(path):
        return VideoDataset(path, options)
    if os.sep in data or os.path.exists(path):
        return FolderDataset(path, options)
    names = [*SOURCES, *FILE_SOURCES]
    known = f"it is neither a file nor a folder nor one of {', '.join(names)}"
    raise UnknownData(f"unknown `data` {data!r}{did_you_mean(data, names)} ({known})")


def _folder(path: str, options: DataSpec) -> Dataset:
    """The dataset in a folder, by the files in it: images, unless there are none."""
    if any(all(os.path.isfile(os.path.join(path, f)) for f in files) for files in SAVED_BY_HUGGING_FACE):
        return ObjectDataset(path, options, lambda: _load_from_disk(path))
    others: dict[str, str] = {}
    for here, below, names in os.walk(path, followlinks=False):
        below[:] = [name for name in below if not name.startswith(".")]
        for name in names:
            if is_image(name):
                return FolderDataset(path, options)
            kind = "video" if is_video(name) else os.path.splitext(name)[1].lower()
            others.setdefault(kind, os.path.join(here, name))
    if "video" in others:
        return VideoDataset(path, options)
    if ".parquet" in others and has_images(Path(others[".parquet"])):
        return ObjectDataset(path, options, lambda: read_parquet(path))
    return FolderDataset(path, options)


def dataset_of(data: Any, options: DataSpec = DEFAULTS) -> Dataset:
    """The dataset that a user passes as `data`: a name, a path, a function, arrays, or a dataset object.

    Keep the result as long as you use its name: an object in memory is found by name only while it is referenced.

    Raises:
        UserError: If it is none of these.
    """
    if isinstance(data, str | os.PathLike):
        return resolve(replace(options, data=os.fspath(data)))
    if callable(data) and not hasattr(data, "__getitem__"):
        reference = reference_to(data)
        if reference is None:
            raise UserError(f"`data` must be {KINDS}, got {type(data).__name__}")
        return resolve(replace(options, data=reference))
    if not is_object(data):
        raise UserError(f"`data` must be {KINDS}, got {type(data).__name__}")
    known = remember_object(data, options.white)
    return resolve(replace(options, data=known.name))


def _load_from_disk(path: str) -> Any:
    return require("datasets", f"{path} is a Hugging Face dataset, which", "datasets").load_from_disk(path)
