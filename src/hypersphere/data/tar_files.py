"""Images in tar files in WebDataset layout (members with the same name are one sample), local or behind a URL.

Each tar file is scanned once for the offsets of its members. Images are then read one by one, so shuffling and
resuming work as for image files. Nothing is unpacked or cached.
"""

import contextlib
import json
import os
import re
import tarfile
from collections.abc import Iterator
from itertools import product
from typing import IO, Any

import torch

from hypersphere.data.folder import Listing, is_image
from hypersphere.data.tar_members import Member, file_system
from hypersphere.errors import UserError


def find_shards(pattern: str) -> list[str]:
    """The tar files that match a pattern with {000..123} ranges, * and ?. An existing file is taken literally."""
    found = []
    for tar in [pattern] if os.path.exists(pattern) else _expand_ranges(pattern):
        if any(sign in tar for sign in "*?[") and not os.path.exists(tar):
            system, path = file_system(tar)
            found += sorted(system.unstrip_protocol(name) if "://" in tar else name for name in system.glob(path))
        else:
            found.append(tar)
    if not found:
        raise UserError(f"no tar file matches {pattern}: check the path")
    return found


def _expand_ranges(pattern: str) -> list[str]:
    """Replace every {a..b} by each number from a to b, padded to the width of a."""
    parts = re.split(r"\{(\d+)\.\.(\d+)\}", pattern)
    texts, ranges = parts[::3], list(zip(parts[1::3], parts[2::3], strict=True))
    counts = [[f"{n:0{len(low)}}" for n in range(int(low), int(high) + 1)] for low, high in ranges]
    return ["".join(t + n for t, n in zip(texts, (*chosen, ""), strict=True)) for chosen in product(*counts)]


def list_shards(pattern: str) -> Listing:
    """All images in the tar files. They have labels if each has a member .cls, or .json with the key "label"."""
    names, labels = [], []
    for tar in find_shards(pattern):
        for member, label in _members(tar):
            names.append(str(member))
            labels.append(label)
    if not names:
        raise UserError(f"no images in {pattern}: expected members with a suffix such as .jpg or .png")
    if any(label is None for label in labels):
        return Listing(tuple(names))
    classes = tuple(sorted({str(label) for label in labels}, key=lambda name: (len(name), name)))
    number = {name: n for n, name in enumerate(classes)}
    return Listing(tuple(names), torch.tensor([number[str(label)] for label in labels]), classes)


def _members(tar: str) -> Iterator[tuple[Member, Any]]:
    """(image, label) of each sample in one tar file; the label is None if it has none."""
    system, path = file_system(tar)
    images: dict[str, dict[str, Member]] = {}  # by sample and suffix; the last of two equal names counts, as in tar
    labels: dict[str, dict[str, Any]] = {}
    try:
        with system.open(path, "rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            for name, found in _files(archive):
                folder, _, base = name.rpartition("/")
                first, _, suffix = base.partition(".")  # members of one sample share the name before the first dot
                stem = f"{folder}/{first}"
                if is_image(base):
                    images.setdefault(stem, {})[suffix] = Member(tar, found.offset_data, found.size, name)
                elif suffix in ("cls", "json"):
                    labels.setdefault(stem, {})[suffix] = _label(archive.extractfile(found), suffix)
    except UserError:
        raise
    except Exception as error:  # remote file systems have their own errors
        raise UserError(f"{tar} cannot be read as a tar file ({error})") from None
    for stem, kinds in images.items():
        label = labels.get(stem, {})
        yield kinds[min(kinds, key=_rank)], label.get("cls") or label.get("json")


def _files(archive: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Each file with its name; a hard link gives the earlier member that has the content."""
    known: dict[str, tarfile.TarInfo] = {}
    for about in archive:
        found = known.get(about.linkname) if about.islnk() else about
        if found is not None and found.isfile():
            known[about.name] = found
            yield about.name, found


def _rank(suffix: str) -> tuple[bool, str]:
    """Sort key for a sample's images: 000.jpg before 000.depth.png, then by name; the first one is used."""
    return "." in suffix, suffix


def _label(file: IO[bytes] | None, suffix: str) -> Any:
    with contextlib.suppress(ValueError, AttributeError):
        text = file.read().decode().strip() if file is not None else ""
        return text or None if suffix == "cls" else json.loads(text).get("label")
    return None
