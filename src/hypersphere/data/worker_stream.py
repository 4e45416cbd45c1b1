"""Read images in worker processes, batch by batch, in a requested order."""

import os
import signal
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from hypersphere.data.decode import Unreadable, read_pixels
from hypersphere.data.tar_members import file_or_member, opened
from hypersphere.errors import UserError
from hypersphere.util.cores import available_cores

PATIENCE = 1000  # most images to try in place of an unreadable one
Make = Callable[[Tensor, Any], np.ndarray]  # (image of shape (3, H, W), uint8; parameters) → uint8 array


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
        """The image as uint8 (3, H, W). With `side` it may be shrunk to a shorter side of at least `side` pixels.

        Raises:
            Unreadable: If the image cannot be read.
        """


class FileReader:
    """Reads image files and members of tar files.

    Stores all names in one block of bytes, which worker processes share. A list would be copied into each process.
    """

    def __init__(self, paths: Sequence[Path | str], white: int | None = None) -> None:
        names = [os.fsencode(path) for path in paths]
        self._bytes = np.frombuffer(b"".join(names), np.uint8)
        self._ends = np.cumsum([0, *map(len, names)])
        self.white = white

    def __len__(self) -> int:
        return len(self._ends) - 1

    def name(self, number: int) -> Path | str:
        start, end = self._ends[number : number + 2]
        return file_or_member(os.fsdecode(self._bytes[start:end].tobytes()))

    def read(self, number: int, side: int | None) -> Tensor:
        return read_pixels(opened(self.name(number)), side, self.white)


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
        make: Function that workers apply to an image: ((3, H, W) uint8, parameters) → uint8 array.
        side: See `Reader.read`.
        workers: Number of worker processes; 0 reads in this process.
        pin: Whether batches are in pinned memory, for a GPU.
        fill: Whether to replace unreadable images.
        unreadable: Dictionary that receives unreadable images and the reasons.
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
    ) -> None:
        self.reader, self.fill = reader, fill
        self.unreadable = {} if unreadable is None else unreadable
        self._asked = _Asked()
        self._following: dict[int, int] = {}  # unreadable image → the next one that can be read
        self._samples = _Samples(reader, make, side)
        self._loader = DataLoader(
            self._samples,
            batch_sampler=self._asked,
            num_workers=workers,
            collate_fn=partial(_collate, fill=fill),
            pin_memory=pin,
            worker_init_fn=_leave_signals_to_the_parent,
            generator=torch.Generator(),  # otherwise each start would draw from the global generator
        )

    def __call__(self, batches: Iterable[list[Wanted]]) -> Iterator[Decoded]:
        """Yield the decoded batches. Workers take from `batches` as they become free."""
        self._asked.batches = batches
        for pixels, reasons in self._loader:
            batch = self._asked.given.popleft()
            for place, reason in reasons.items():
                self.unreadable[self.reader.name(batch[place].sample)] = reason
            used = _used(len(batch), reasons, self.fill)
            if pixels is not None:
                yield Decoded(pixels, torch.tensor([batch[place].sample for place in used]))
            elif self.fill:
                yield self._replacements(batch)

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
        path, reason = next(reversed(self.unreadable.items()))
        raise UserError(f"none of {len(passed) - 1} images could be read, such as {path} ({reason})")


def _used(count: int, holes: Container[int], fill: bool) -> list[int]:
    """The source of each place in a batch: itself, or another place for a hole. Without `fill`, holes are skipped."""
    good = [place for place in range(count) if place not in holes]
    if not good or not fill:
        return good
    return [good[place % len(good)] if place in holes else place for place in range(count)]


def _collate(items: list[tuple[np.ndarray | None, str]], fill: bool) -> tuple[Tensor | None, dict[int, str]]:
    """(stacked images with holes filled or skipped, {place of a hole: reason}); None if no image is readable."""
    reasons = {place: reason for place, (_, reason) in enumerate(items) if reason}
    used = _used(len(items), reasons, fill)
    return torch.from_numpy(np.stack([items[place][0] for place in used])) if used else None, reasons  # type: ignore[misc]


def _leave_signals_to_the_parent(worker: int) -> None:
    """Ignore signals to the whole process group, since the current step still needs its images.

    A second SIGTERM, with which the parent ends its workers, takes effect.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))


def default_workers(on_gpu: bool) -> int:
    """With a GPU, the cores of this process except two; without one, 0, since the networks need the cores."""
    return max(1, min(32, len(available_cores()) - 2)) if on_gpu else 0
