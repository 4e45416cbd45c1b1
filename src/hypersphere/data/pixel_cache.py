"""Keep decoded images, so that each file is decoded once and not in every epoch.

The pixels lie one after the other in a file that all processes of a machine map: in memory, where it has no name and
goes with its processes, or on disk, where later runs find it again. A GPU gets a copy of it.
"""

import hashlib
import json
import os
import shutil
import socket
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hypersphere.data.decode import Unreadable
from hypersphere.data.splits import evenly
from hypersphere.data.worker_stream import Reader, Stream
from hypersphere.distributed.collectives import agreed, merged
from hypersphere.errors import UserError, first_line
from hypersphere.util.console import notify, progress_bar
from hypersphere.util.files import put_in_place
from hypersphere.util.free_memory import free_memory, in_bytes
from hypersphere.util.launcher import local_rank_and_size
from hypersphere.views.packed import PackedImages, has_kernels

Place = Literal["auto", "gpu", "memory", "disk", "off"]
SHARES = {"gpu": 0.3, "memory": 0.5, "disk": 0.25}  # of what is free, which `auto` may take
MOST = 0.9  # of what is free, which a place that the user chose may take
TRIED = 16  # images whose sizes tell how much memory all of them take
AT_ONCE = 32  # images that a worker sends at once
FORMAT = "1"  # of the files on disk


class Tables(NamedTuple):
    """Where each of N images lies in the file."""

    starts: np.ndarray  # (N,), int64
    shapes: np.ndarray  # (N, 3), int64: channels, height, width; zeros if the image cannot be read
    reasons: dict[int, str]  # why images cannot be read


class CachedReader:
    """Reads decoded images from a file that is mapped into memory. A copy in another process maps the same file.

    Args:
        source: Reads the original images; it gives their names.
        path: The file.
        tables: Where the images lie.
        owner: A file without a name, which lives until it is closed with this reader.
    """

    def __init__(self, source: Reader, path: str, tables: Tables, owner: IO[bytes] | None = None) -> None:
        self.source, self.path, self.tables = source, path, tables
        self.pixels = _mapped(path)
        if owner is not None:
            weakref.finalize(self, owner.close)

    def __len__(self) -> int:
        return len(self.source)

    def name(self, number: int) -> Path | str:
        return self.source.name(number)

    def read(self, number: int, side: int | None) -> Tensor:
        if number in self.tables.reasons:
            raise Unreadable(self.tables.reasons[number])
        start, shape = self.tables.starts[number], self.tables.shapes[number]
        return torch.from_numpy(self.pixels[start : start + shape.prod()].reshape(shape))

    def fingerprint(self) -> str | None:
        return self.source.fingerprint()

    def __reduce__(self) -> tuple[Any, ...]:
        return CachedReader, (self.source, self.path, self.tables)

    def on_gpu(self, device: torch.device) -> PackedImages:
        """A copy in GPU memory."""
        starts, (_, heights, widths) = self.tables.starts, self.tables.shapes.T.astype(np.int32)
        tables = (torch.from_numpy(np.ascontiguousarray(table)).to(device) for table in (starts, heights, widths))
        return PackedImages(torch.from_numpy(self.pixels).to(device), *tables)


def _mapped(path: str) -> np.ndarray:
    """The bytes of a file, as an array that torch takes: writes to it stay in this process."""
    return np.memmap(path, np.uint8, mode="c") if os.path.getsize(path) else np.empty(0, np.uint8)


def keep_decoded(
    reader: Reader, side: int | None, place: Place, device: torch.device, workers: int, progress: bool = False
) -> tuple[CachedReader | None, bool]:
    """Decode all images once, and keep them if there is room.

    On several ranks, one of each machine decodes, and the others share its file.

    Args:
        reader: Reads the images.
        side: See `Reader.read`.
        place: Where to keep them.
        device: Device of the networks.
        workers: Number of worker processes that decode; 0 decodes in this process.
        progress: Whether to show a progress bar.

    Returns:
        (reader of the kept images, whether to copy them to the GPU); (None, False) if they are not kept.

    Raises:
        UserError: If the user chose a place that has too little room.
    """
    if place == "off" or not len(reader):
        return None, False
    early = local_rank_and_size()[0] == 0
    found = agreed(lambda: _decode(reader, side, place, device, workers, progress) if early else None)
    machine = socket.gethostname()
    shared = merged({machine: found} if early else {})  # a collective: every rank takes part
    return found or shared[machine] or (None, False)


def place_of(reader: Reader, side: int | None, place: Place, device: torch.device) -> tuple[Place, float]:
    """Where `keep_decoded` would keep the images, and about how many bytes they take."""
    if place == "off" or not len(reader):
        return "off", 0.0
    estimate = _estimate(reader, side)
    return _choose(place, estimate, device, named=True)[0], estimate


def _decode(
    reader: Reader, side: int | None, place: Place, device: torch.device, workers: int, progress: bool
) -> tuple[CachedReader, bool] | None:
    key = _key(reader, side)
    if key is not None and (known := _on_disk(reader, key)) is not None and place in ("auto", "disk"):
        return known, False
    chosen, room = _choose(place, _estimate(reader, side), device, named=key is not None)
    if chosen == "off":
        return None
    stream = Stream(reader, _whole, side=side, workers=workers, fill=False, stack=_packed)
    try:
        if chosen == "disk":
            assert key is not None
            cached = _to_disk(reader, stream, key, room, progress)
        else:
            cached = _to_memory(reader, stream, room, progress)
    except (_NotKept, OSError) as error:
        notify(f"decoded images are not kept ({first_line(error)}): they are decoded in every epoch")
        return None
    where = {"gpu": "GPU memory", "memory": "memory", "disk": cached.path}[chosen]
    notify(f"decoded images are kept in {where}: {in_bytes(len(cached.pixels))} (`cache` off decodes them every epoch)")
    return cached, chosen == "gpu"


def _estimate(reader: Reader, side: int | None) -> float:
    """Bytes of all decoded images, from a few of them."""
    sizes = []
    for number in evenly(len(reader), TRIED).tolist():
        try:
            sizes.append(reader.read(number, side).numel())
        except Unreadable:
            sizes.append(0)
    return sum(sizes) / len(sizes) * len(reader)


def _choose(place: Place, estimate: float, device: torch.device, named: bool) -> tuple[Place, float]:
    """A place with enough room, and its room in bytes."""
    on_gpu = has_kernels(device)
    free = {
        "gpu": min(free_memory(device) or 0, free_memory(torch.device("cpu")) or 0) if on_gpu else 0,
        "memory": free_memory(torch.device("cpu")) or 0,
        "disk": shutil.disk_usage(_existing(cache_folder())).free if named else 0,
    }
    if place == "auto":
        for name in ("gpu", "memory", "disk"):
            if estimate <= SHARES[name] * free[name]:
                return name, MOST * free[name]
        return "off", 0.0
    if place == "gpu" and not on_gpu:
        raise UserError(f"`cache` gpu needs a GPU with Triton, and the device is {device}: choose memory or disk")
    if place == "disk" and not named:
        raise UserError("`cache` disk applies to image files, not to dataset objects: choose memory")
    if estimate > MOST * free[place]:
        need = f"the decoded images take about {in_bytes(estimate)}, and {in_bytes(free[place])} are free"
        raise UserError(f"`cache` {place} has too little room: {need}; choose another place, or off")
    return place, MOST * free[place]


def _to_memory(reader: Reader, stream: Stream, room: float, progress: bool) -> CachedReader:
    owner, path = _nameless_file()
    try:
        return CachedReader(reader, path, _write(stream, owner, room, progress), owner)
    except BaseException:
        owner.close()
        raise


def _to_disk(reader: Reader, stream: Stream, key: str, room: float, progress: bool) -> CachedReader:
    """Write the pixels, then the tables: without them the pixels do not count."""
    pixels, index = _files(key)
    pixels.parent.mkdir(parents=True, exist_ok=True)
    with put_in_place(pixels) as scratch, open(scratch, "wb") as file:
        tables = _write(stream, file, room, progress)
    with put_in_place(index) as scratch, open(scratch, "wb") as file:
        np.savez(file, starts=tables.starts, shapes=tables.shapes, reasons=json.dumps(list(tables.reasons.items())))
    return CachedReader(reader, str(pixels), tables)


def _on_disk(reader: Reader, key: str) -> CachedReader | None:
    """What an earlier run has kept of the same images; None if there is nothing, or it is damaged."""
    pixels, index = _files(key)
    try:
        with np.load(index, allow_pickle=False) as found:
            tables = Tables(found["starts"], found["shapes"], dict(json.loads(str(found["reasons"]))))
        cached = CachedReader(reader, str(pixels), tables)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    whole = tables.starts.shape == (len(reader),) and tables.shapes.shape == (len(reader), 3)
    return cached if whole and len(cached.pixels) == tables.shapes.prod(1).sum() else None


def _files(key: str) -> tuple[Path, Path]:
    return cache_folder() / f"{key}.pixels", cache_folder() / f"{key}.npz"


def cache_folder() -> Path:
    return Path(os.environ.get("HYPERSPHERE_CACHE") or "~/.cache/hypersphere/decoded").expanduser()


def _existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _key(reader: Reader, side: int | None) -> str | None:
    """A name for the decoded images that changes if the files or the way of decoding change; None without files."""
    known = reader.fingerprint()
    return None if known is None else hashlib.sha256(f"{FORMAT} {side} {known}".encode()).hexdigest()[:32]


class _NotKept(Exception):
    """There is no room for all images, or none can be read."""


def _write(stream: Stream, file: IO[bytes], room: float, progress: bool) -> Tables:
    """Append all images to a file."""
    count = len(stream.reader)
    starts, shapes, end = np.zeros(count, np.int64), np.zeros((count, 3), np.int64), 0
    with progress_bar("decoding images once", count, show=progress and count > 1000) as bar:
        for batch, sample in stream.every(AT_ONCE):
            for number, image in zip(sample.tolist(), _unpacked(batch.numpy(), len(sample)), strict=True):
                starts[number], shapes[number], end = end, image.shape, end + image.size
                if end > room:
                    raise _NotKept(f"they take more than {in_bytes(room)}")
                file.write(image.data)
            bar.update(int(sample[-1]) + 1)
    file.flush()
    if not end:
        raise _NotKept("none can be read")
    missing = np.flatnonzero(shapes[:, 0] == 0).tolist()
    return Tables(starts, shapes, {n: stream.unreadable[stream.reader.name(n)] for n in missing})


def _whole(image: Tensor, how: None) -> np.ndarray:
    return image.contiguous().numpy()


def _packed(images: Sequence[np.ndarray]) -> np.ndarray:
    """Images of different sizes as one array of bytes: their shapes, then their pixels."""
    shapes = np.array([image.shape for image in images], np.int64)
    return np.concatenate([shapes.reshape(-1).view(np.uint8), *(image.reshape(-1) for image in images)])


def _unpacked(block: np.ndarray, count: int) -> Iterator[np.ndarray]:
    shapes, at = block[: 24 * count].view(np.int64).reshape(count, 3), 24 * count
    for shape in shapes:
        yield block[at : at + shape.prod()].reshape(shape)
        at += shape.prod()


def _nameless_file() -> tuple[IO[bytes], str]:
    """A file in memory that is gone when the last process closes it, and a path by which other processes open it.

    It does not count against the size of /dev/shm, which is small in containers. Systems without such files get a
    temporary one.
    """
    if hasattr(os, "memfd_create"):
        file = open(os.memfd_create("hypersphere"), "wb")  # noqa: SIM115
        return file, f"/proc/{os.getpid()}/fd/{file.fileno()}"
    temporary = tempfile.NamedTemporaryFile(prefix="hypersphere-")  # noqa: SIM115
    return temporary, temporary.name
