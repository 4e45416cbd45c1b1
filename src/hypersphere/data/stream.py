"""Images read by worker processes, batch after batch, in the order asked for."""

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
from hypersphere.data.members import file_or_member, opened
from hypersphere.errors import UserError
from hypersphere.util.cores import own_cores

PATIENCE = 1000  # images tried, one after the other, in place of one that cannot be read
Make = Callable[[Tensor, Any], np.ndarray]  # an image, 3 × H × W bytes, and what was asked of it → bytes


class Wanted(NamedTuple):
    sample: int  # number of the image
    how: Any  # handed to `make`


class Decoded(NamedTuple):
    pixels: Tensor  # B × …, uint8
    sample: Tensor


class Reader(Protocol):
    """Images by number, read in worker processes."""

    def __len__(self) -> int: ...

    def name(self, number: int) -> Path | str:
        """What messages call the image: its path, for a file."""

    def read(self, number: int, side: int | None) -> Tensor:
        """The image, 3 × H × W bytes; with `side` it may be smaller, if its shorter side keeps that many pixels.

        Raises:
            Unreadable: If the image cannot be read.
        """


class FileReader:
    """Image files, or members of tar files.

    Their names are one block of bytes, which worker processes share; a list would be copied bit by bit.
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
    """What the workers of a `DataLoader` make: the bytes of an image; or nothing, and why."""

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
    """What the loader hands to its workers, and remembers, to be matched with what comes back."""

    batches: Iterable[list[Wanted]] = ()

    def __iter__(self) -> Iterator[list[Wanted]]:
        self.given: deque[list[Wanted]] = deque()
        for batch in self.batches:
            self.given.append(batch)
            yield batch


class Stream:
    """Lists of wanted images in, decoded batches out, in order.

    An image that cannot be read is noted in `unreadable`. With `fill`, another image of its batch takes its place, or
    the next readable one if the whole batch is unreadable; without, it is left out, and so is an empty batch.

    Args:
        reader: The images.
        make: What workers make of an image: (3 × H × W bytes, what was asked of it) → bytes.
        side: See `Reader.read`.
        workers: Processes that read; 0 reads in this one.
        pin: Whether batches are in pinned memory, for a GPU.
        fill: Whether unreadable images are replaced.
        unreadable: A dictionary to note unreadable images in, with the reason.
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
            generator=torch.Generator(),  # else each start of it would draw from that of the networks
        )

    def __call__(self, batches: Iterable[list[Wanted]]) -> Iterator[Decoded]:
        """`batches` are taken as the workers get to them."""
        self._asked.batches = batches
        for pixels, reasons in self._loader:
            batch = self._asked.given.popleft()
            for place, reason in reasons.items():
                self.unreadable[self.reader.name(batch[place].sample)] = reason
            used = _used(len(batch), reasons, self.fill)
            if pixels is not None:
                yield Decoded(pixels, torch.tensor([batch[place].sample for place in used]))
            elif self.fill:
                yield self._instead(batch)

    def every(self, at_once: int) -> Iterator[Decoded]:
        """All images in their order, `at_once` at a time; nothing is asked of them."""
        numbers = torch.arange(len(self.reader)).split(at_once)
        return self([Wanted(n, None) for n in part.tolist()] for part in numbers)

    def _instead(self, batch: list[Wanted]) -> Decoded:
        """The next readable image in place of each: the same one again after a resume."""
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
    """Whose bytes stand at each place: its own, or another's where it is a hole; without `fill` holes are left out."""
    good = [place for place in range(count) if place not in holes]
    if not good or not fill:
        return good
    return [good[place % len(good)] if place in holes else place for place in range(count)]


def _collate(items: list[tuple[np.ndarray | None, str]], fill: bool) -> tuple[Tensor | None, dict[int, str]]:
    """One block of bytes, holes filled with the neighbour's, or left out; and which were holes, and why."""
    reasons = {place: reason for place, (_, reason) in enumerate(items) if reason}
    used = _used(len(items), reasons, fill)
    return torch.from_numpy(np.stack([items[place][0] for place in used])) if used else None, reasons  # type: ignore[misc]


def _leave_signals_to_the_parent(worker: int) -> None:
    """One that asks a whole group of processes to stop: the update under way still needs its images. A second one, with
    which the parent ends its workers if need be, acts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))


def default_workers(on_gpu: bool) -> int:
    """As many as there are cores for this process, but two that feed the GPU; none where the networks need them."""
    return max(1, min(32, len(own_cores()) - 2)) if on_gpu else 0
