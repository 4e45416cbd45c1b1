"""Read images in worker processes, batch by batch, in a requested order."""

import hashlib
import itertools
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from hypersphere.data.decode import Unreadable, read_pixels
from hypersphere.data.tar_members import container_of, file_or_member, opened
from hypersphere.data.unreadable import none_readable
from hypersphere.errors import UserError, first_line
from hypersphere.util.console import notify, notify_once
from hypersphere.util.cores import available_cores

PATIENCE = 1000  # most images to try in place of an unreadable one
REPLACED = 3  # times in a row that workers which were killed are replaced
Make = Callable[[Tensor, Any], np.ndarray]  # (image of shape (C, H, W), uint8; parameters) → uint8 array


class Wanted(NamedTuple):
    """A request for one image."""

    sample: int  # index of the image
    how: Any  # parameters of `make`


class Decoded(NamedTuple):
    """A batch of images that workers have read."""

    pixels: Tensor  # (B, …), uint8
    sample: Tensor  # (B,), int64: indices of the images


class Reader(Protocol):
    """Reads images by index, in worker processes."""

    def __len__(self) -> int: ...

    def name(self, number: int) -> Path | str:
        """The name of the image in messages: its path, for a file."""

    def read(self, number: int, side: int | None) -> Tensor:
        """The image as uint8 (C, H, W). With `side` it may be shrunk to a shorter side of at least `side` pixels.

        Raises:
            Unreadable: If the image cannot be read.
        """

    def fingerprint(self) -> str | None:
        """A hash that changes if the files or the way of reading them change; None if the images are not files."""
        return None


class FileReader:
    """Reads image files and members of tar files.

    Stores all names in one block of bytes, which worker processes share. A list would be copied into each process.
    """

    def __init__(self, paths: Sequence[Path | str], white: int | None = None, channels: int | None = None) -> None:
        names = [os.fsencode(path) for path in paths]
        self._bytes = np.frombuffer(b"".join(names), np.uint8)
        self._ends = np.cumsum([0, *map(len, names)])
        self.white, self.channels = white, channels

    def __len__(self) -> int:
        return len(self._ends) - 1

    def name(self, number: int) -> Path | str:
        start, end = self._ends[number : number + 2]
        return file_or_member(os.fsdecode(self._bytes[start:end].tobytes()))

    def read(self, number: int, side: int | None) -> Tensor:
        return read_pixels(opened(self.name(number)), side, self.white, self.channels)

    def fingerprint(self) -> str:
        options = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        digest = hashlib.sha256(repr(sorted(options.items())).encode())
        states: dict[str, bytes] = {}  # of files that have many images
        for number in range(len(self)):
            file = container_of(name := self.name(number))
            state = states.get(file) or _state_of(file)
            if file != os.fspath(name):
                states[file] = state
            digest.update(os.fsencode(name) + state)
        return digest.hexdigest()


def _state_of(file: str) -> bytes:
    """Size and time of a file; empty if it is missing or behind a URL."""
    try:
        found = os.stat(file)
    except OSError:
        return b""
    return f"{found.st_size} {found.st_mtime_ns}".encode()


class _Samples(Dataset[tuple[np.ndarray | None, str]]):
    """The dataset of the `DataLoader`: (bytes of an image, ""), or (None, reason) if it cannot be read."""

    def __init__(self, reader: Reader, make: Make, side: int | None) -> None:
        self.reader, self.make, self.side = reader, make, side

    def __getitem__(self, wanted: Wanted) -> tuple[np.ndarray | None, str]:
        try:
            return self.make(self.reader.read(wanted.sample, self.side), wanted.how), ""
        except Unreadable as reason:
            return None, str(reason)
        except Exception as error:
            return None, f"{type(error).__name__}: {error}"


class _Asked:
    """A batch sampler that remembers its batches, to match them with the results of the workers."""

    batches: Iterable[list[Wanted]] = ()

    def __iter__(self) -> Iterator[list[Wanted]]:
        self.given: deque[list[Wanted]] = deque()
        for batch in self.batches:
            self.given.append(batch)
            yield batch


class Stream:
    """Turns lists of requested images into decoded batches, in order.

    Notes images that cannot be read in `unreadable`. With `fill`, another image of the batch replaces each of them, or
    the next readable image if the whole batch is unreadable. Without `fill`, they and empty batches are skipped.

    Args:
        reader: The images.
        make: Function that workers apply to an image: ((C, H, W) uint8, parameters) → uint8 array.
        side: See `Reader.read`.
        workers: Number of worker processes; 0 reads in this process.
        pin: Whether batches are in pinned memory, for a GPU.
        fill: Whether to replace unreadable images.
        unreadable: Dictionary that receives unreadable images and the reasons.
        stack: Function that makes one array of a batch.
    """

    def __init__(
        self,
        reader: Reader,
        make: Make,
        *,
        side: int | None,
        workers: int,
        pin: bool = False,
        fill: bool = True,
        unreadable: dict[Path | str, str] | None = None,
        stack: Callable[[Sequence[np.ndarray]], np.ndarray] = np.stack,
    ) -> None:
        self.reader, self.fill, self.pin = reader, fill, pin
        self.unreadable = {} if unreadable is None else unreadable
        self._asked = _Asked()
        self._following: dict[int, int] = {}  # unreadable image → the next one that can be read
        self._samples = _Samples(reader, make, side)
        self._loader = DataLoader(
            self._samples,
            batch_sampler=self._asked,
            num_workers=workers,
            collate_fn=partial(_collate, fill=fill, stack=stack),
            pin_memory=pin,
            worker_init_fn=_leave_signals_to_the_parent,
            generator=torch.Generator(),  # otherwise each start would draw from the global generator
        )

    def __call__(self, batches: Iterable[list[Wanted]]) -> Iterator[Decoded]:
        """Yield the decoded batches. Workers take from `batches` as they become free.

        If a worker is killed, others read what it had not delivered.

        Raises:
            UserError: If workers are killed again and again.
        """
        rest, deaths = iter(batches), 0
        while True:
            self._asked.batches = rest
            try:
                for decoded in self._decoded():
                    yield decoded
                    deaths = 0
                return
            except _WorkerDied as death:
                deaths += 1
                if deaths > REPLACED:
                    advice = "it may need more memory than there is: use fewer `workers` or a smaller `batch`"
                    raise UserError(
                        f"a process that reads images was killed {deaths} times ({death}): {advice}"
                    ) from None
                notify(f"a process that reads images was killed ({death}): it is replaced")
                rest = itertools.chain(list(self._asked.given), rest)

    def _decoded(self) -> Iterator[Decoded]:
        for sent, reasons in _watched(self._loader):
            pixels = self._received(sent)
            batch = self._asked.given.popleft()
            for place, reason in reasons.items():
                self.unreadable[self.reader.name(batch[place].sample)] = reason
            used = used_places(len(batch), reasons, self.fill)
            if pixels is not None:
                yield Decoded(pixels, torch.tensor([batch[place].sample for place in used]))
            elif self.fill:
                yield self._replacements(batch)

    def _received(self, sent: Tensor | np.ndarray | None) -> Tensor | None:
        """The pixels of a batch, which came through shared memory, or through a pipe if there is too little of it."""
        if not isinstance(sent, np.ndarray):
            return sent
        advice = "a container gets more with docker run --shm-size=1g"
        notify_once(f"/dev/shm is too small, so reading images is slower ({_shared_memory()}): {advice}")
        return torch.from_numpy(sent).pin_memory() if self.pin else torch.from_numpy(sent)

    def every(self, at_once: int) -> Iterator[Decoded]:
        """All images in order, `at_once` at a time, without parameters."""
        numbers = torch.arange(len(self.reader)).split(at_once)
        return self([Wanted(n, None) for n in part.tolist()] for part in numbers)

    def _replacements(self, batch: list[Wanted]) -> Decoded:
        """The next readable image in place of each one. A resumed run gets the same replacements."""
        found = [self._next_readable(wanted) for wanted in batch]
        pixels, samples = zip(*found, strict=True)
        return Decoded(torch.from_numpy(np.stack(pixels)), torch.tensor(samples))

    def _next_readable(self, wanted: Wanted) -> tuple[np.ndarray, int]:
        passed, tried, sample = [wanted.sample], 0, wanted.sample
        while len(passed) <= len(self.reader) and tried < PATIENCE:
            sample = self._following.get(sample, (sample + 1) % len(self.reader))
            if self.reader.name(sample) not in self.unreadable:
                pixels, reason = self._samples[wanted._replace(sample=sample)]
                if pixels is not None:
                    self._following.update(dict.fromkeys(passed, sample))
                    return pixels, sample
                self.unreadable[self.reader.name(sample)] = reason
                tried += 1
            passed.append(sample)
        raise none_readable(len(passed) - 1, self.unreadable)


def used_places(count: int, holes: Container[int], fill: bool) -> list[int]:
    """The source of each place in a batch: itself, or another place for a hole. Without `fill`, holes are skipped."""
    good = [place for place in range(count) if place not in holes]
    if not good or not fill:
        return good
    return [good[place % len(good)] if place in holes else place for place in range(count)]


def _collate(
    items: list[tuple[np.ndarray | None, str]], fill: bool, stack: Callable[[Sequence[np.ndarray]], np.ndarray]
) -> tuple[Tensor | np.ndarray | None, dict[int, str]]:
    """(stacked images with holes filled or skipped, {place of a hole: reason}); None if no image is readable."""
    reasons = {place: reason for place, (_, reason) in enumerate(items) if reason}
    used = used_places(len(items), reasons, fill)
    return _shared(stack([items[place][0] for place in used])) if used else None, reasons  # type: ignore[misc]


def _shared(pixels: np.ndarray) -> Tensor | np.ndarray:
    """The pixels in shared memory, if this is a worker and there is enough; an array is sent through a pipe.

    The queue of a worker would try the same in a thread, drop the batch on failure, and leave the parent waiting.
    """
    tensor = torch.from_numpy(pixels)
    if get_worker_info() is None:
        return tensor
    try:
        return tensor.share_memory_()
    except (RuntimeError, OSError):
        return pixels


def _shared_memory() -> str:
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return "its size is unknown"
    return f"it has {found.f_blocks * found.f_frsize / 1e6:,.0f} MB"


class _WorkerDied(Exception):
    """A worker process was killed."""


def _watched(loader: DataLoader) -> Iterator[Any]:
    """The batches of a loader. Raises `_WorkerDied` if a worker was killed, and then ends the others.

    At the end of a worker, torch would raise in the main thread, wherever that is. We raise only while we wait for a
    batch, which may never come if the worker was killed while it was sending.
    """
    in_main_thread = threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGCHLD")
    before = (signal.getsignal(signal.SIGCHLD) or signal.SIG_DFL) if in_main_thread else None
    coming = iter(loader)  # sets a handler
    workers = getattr(coming, "_workers", ())

    def check(*_: Any) -> None:
        if dead := [worker for worker in workers if worker.exitcode]:
            raise _WorkerDied(f"exit status {dead[0].exitcode}")

    while True:
        try:
            if in_main_thread:
                signal.signal(signal.SIGCHLD, check)
            check()
            batch = _next(coming)
        except StopIteration:
            return
        except _WorkerDied:
            for worker in workers:
                worker.kill()
            raise
        finally:
            if in_main_thread:
                signal.signal(signal.SIGCHLD, before)
        yield batch


def _next(coming: Iterator[Any]) -> Any:
    try:
        return next(coming)
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError) as error:
        if isinstance(error, RuntimeError) and "DataLoader worker" not in str(error):
            raise
        raise _WorkerDied(first_line(error)) from None


def _leave_signals_to_the_parent(worker: int) -> None:
    """Ignore signals to the whole process group, since the current step still needs its images.

    A second SIGTERM, with which the parent ends its workers, takes effect.
    """
    for name in {"SIGINT", "SIGHUP"} & vars(signal).keys():
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))


def default_workers(on_gpu: bool) -> int:
    """With a GPU, the cores of this process except two; without one, 0, since the networks need the cores."""
    return max(1, min(32, len(available_cores()) - 2)) if on_gpu else 0
