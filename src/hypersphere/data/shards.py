"""Images in tar files (the layout of WebDataset: members of one name are one sample), on this disk or behind a URL.

A tar file is looked through once for where its members begin; after that each image is read alone, so that order,
shuffling and going on after a stop are those of single files. Nothing is unpacked or kept.
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
from hypersphere.data.members import Member, file_system
from hypersphere.errors import UserError


def find_shards(pattern: str) -> list[str]:
    """The tar files that a pattern means: {000..123} counts, * and ? match names; what exists is meant as it is."""
    found = []
    for each in [pattern] if os.path.exists(pattern) else _counted(pattern):
        if any(sign in each for sign in "*?[") and not os.path.exists(each):
            system, path = file_system(each)
            found += sorted(system.unstrip_protocol(name) if "://" in each else name for name in system.glob(path))
        else:
            found.append(each)
    if not found:
        raise UserError(f"no tar file matches {pattern}")
    return found


def _counted(pattern: str) -> list[str]:
    """Every {a..b} as all numbers from a to b, with as many digits as a has."""
    parts = re.split(r"\{(\d+)\.\.(\d+)\}", pattern)
    texts, ranges = parts[::3], list(zip(parts[1::3], parts[2::3], strict=True))
    counts = [[f"{n:0{len(low)}}" for n in range(int(low), int(high) + 1)] for low, high in ranges]
    return ["".join(t + n for t, n in zip(texts, (*chosen, ""), strict=True)) for chosen in product(*counts)]


def list_shards(pattern: str) -> Listing:
    """All images in the tar files; with labels where each has a member .cls (a number) or .json (its "label")."""
    names, labels = [], []
    for tar in find_shards(pattern):
        for member, label in _members(tar):
            names.append(str(member))
            labels.append(label)
    if not names:
        raise UserError(f"there is no image in {pattern}")
    if any(label is None for label in labels):
        return Listing(tuple(names))
    classes = tuple(sorted({str(label) for label in labels}, key=lambda name: (len(name), name)))
    number = {name: n for n, name in enumerate(classes)}
    return Listing(tuple(names), torch.tensor([number[str(label)] for label in labels]), classes)


def _members(tar: str) -> Iterator[tuple[Member, Any]]:
    """Each sample's image in one tar file, and its label where it has one."""
    system, path = file_system(tar)
    images: dict[str, dict[str, Member]] = {}  # by sample and suffix; what comes twice is as it came last, as in tar
    labels: dict[str, dict[str, Any]] = {}
    try:
        with system.open(path, "rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            for name, found in _files(archive):
                folder, _, base = name.rpartition("/")
                first, _, suffix = base.partition(".")  # a sample's members share what stands before the first dot
                stem = f"{folder}/{first}"
                if is_image(base):
                    images.setdefault(stem, {})[suffix] = Member(tar, found.offset_data, found.size, name)
                elif suffix in ("cls", "json"):
                    labels.setdefault(stem, {})[suffix] = _label(archive.extractfile(found), suffix)
    except UserError:
        raise
    except Exception as error:  # systems behind URLs have errors of their own
        raise UserError(f"{tar} cannot be read as a tar file ({error})") from None
    for stem, kinds in images.items():
        told = labels.get(stem, {})
        yield kinds[min(kinds, key=_rank)], told.get("cls") or told.get("json")


def _files(archive: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Each file by name; in place of a hard link the member before it that has the content."""
    known: dict[str, tarfile.TarInfo] = {}
    for about in archive:
        found = known.get(about.linkname) if about.islnk() else about
        if found is not None and found.isfile():
            known[about.name] = found
            yield about.name, found


def _rank(suffix: str) -> tuple[bool, str]:
    """Which of a sample's images is taken: 000.jpg rather than 000.depth.png; otherwise the first by name."""
    return "." in suffix, suffix


def _label(file: IO[bytes] | None, suffix: str) -> Any:
    with contextlib.suppress(ValueError, AttributeError):
        text = file.read().decode().strip() if file is not None else ""
        return text or None if suffix == "cls" else json.loads(text).get("label")
    return None
