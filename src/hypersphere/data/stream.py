"""Image files decoded by worker processes, batch after batch, in the order asked for."""

import os
import signal
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from hypersphere.data.decode import Unreadable, read_pixels
from hypersphere.data.shards import file_or_member, opened
from hypersphere.errors import UserError
from hypersphere.util.cores import own_cores

PATIENCE = 1000  # files tried, one after the other, in place of one that cannot be read
Make = Callable[[Tensor, Any], np.ndarray]  # an image, 3 × H × W bytes, and what was asked of it → bytes


class Wanted(NamedTuple):
    sample: int  # number of the file
    how: Any  # handed to `make`


class Decoded(NamedTuple):
    pixels: Tensor  # B × …, uint8
    sample: Tensor


class Paths:
    """Names of files as one block of bytes: worker processes share it, where a list would be copied bit by bit."""

    def __init__(self, paths: Sequence[Path | str]) -> None:
        names = [os.fsencode(path) for path in paths]
        self._bytes = np.frombuffer(b"".join(names), np.uint8)
        self._ends = np.cumsum([0, *map(len, names)])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> Path | str:
        start, end = self._ends[number : number + 2]
        name = os.fsdecode(self._bytes[start:end].tobytes())
        return file_or_member(name)


class _Files(Dataset[tuple[np.ndarray | None, str]]):
    def __init__(self, paths: Paths, make: Make, side: int | None, white: int | None) -> None:
        self.paths, self.make, self.side, self.white = paths, make, side, white

    def __getitem__(self, wanted: Wanted) -> tuple[np.ndarray | None, str]:
        """Bytes; or nothing, and why."""
        try:
            image = read_pixels(opened(self.paths[wanted.sample]), self.side, self.white)
            return self.make(image, wanted.how), ""
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
    """`batches` in, decoded batches out, in order. A file that cannot be read is replaced by another of its batch, or,
    where there is none, by the next of the list, and noted in `unreadable`; without `fill` it is left out, and a batch
    of such files alone is not handed out."""

    def __init__(
        self,
        paths: Sequence[Path | str],
        make: Make,
        *,
        side: int | None,
        workers: int,
        white: int | None = None,
        pin: bool = False,
        fill: bool = True,
    ) -> None:
        self.paths, self.unreadable, self.fill = Paths(paths), dict[Path | str, str](), fill
        self._asked = _Asked()
        self._following: dict[int, int] = {}  # of a file that cannot be read: the next that can
        self._files = _Files(self.paths, make, side, white)
        self._loader = DataLoader(
            self._files,
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
                self.unreadable[self.paths[batch[place].sample]] = reason
            used = _used(len(batch), reasons, self.fill)
            if pixels is not None:
                yield Decoded(pixels, torch.tensor([batch[place].sample for place in used]))
            elif self.fill:
                yield self._instead(batch)

    def every(self, at_once: int) -> Iterator[Decoded]:
        """All files in their order, so many at a time; nothing is asked of them."""
        numbers = torch.arange(len(self.paths)).split(at_once)
        return self([Wanted(n, None) for n in part.tolist()] for part in numbers)

    def _instead(self, batch: list[Wanted]) -> Decoded:
        """The next in the list that can be read, in place of each: the same after a run was continued."""
        found = [self._next_readable(wanted) for wanted in batch]
        pixels, samples = zip(*found, strict=True)
        return Decoded(torch.from_numpy(np.stack(pixels)), torch.tensor(samples))

    def _next_readable(self, wanted: Wanted) -> tuple[np.ndarray, int]:
        passed, tried, sample = [wanted.sample], 0, wanted.sample
        while len(passed) <= len(self.paths) and tried < PATIENCE:
            sample = self._following.get(sample, (sample + 1) % len(self.paths))
            if self.paths[sample] not in self.unreadable:
                pixels, reason = self._files[wanted._replace(sample=sample)]
                if pixels is not None:
                    self._following.update(dict.fromkeys(passed, sample))
                    return pixels, sample
                self.unreadable[self.paths[sample]] = reason
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
