"""Starts what there is room for, takes up again what died, and says how far it all is."""

import contextlib
import math
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hypersphere.errors import UserError, first_line
from hypersphere.sweeps.cluster import Cluster, connected
from hypersphere.sweeps.here import Here
from hypersphere.sweeps.processes import Processes
from hypersphere.sweeps.work import LOG, LOST, MISTAKE, FanOut, Pool, Work
from hypersphere.util.launch import launched
from hypersphere.util.progress import duration, live_lines, tell


def fan_out(
    works: Sequence[Work],
    folder: Path,
    how: FanOut,
    device: str = "auto",
    after: Callable[[], None] = lambda: None,
    time_limit: float | None = None,
) -> dict[str, str]:
    """Do all of them; `after` each that succeeds. Returns why those failed that did, by title.

    With a `time_limit` in seconds, nothing is started that would not be done by then, by the time it is expected to
    take; what is still running then is stopped, and saved."""
    if launched() > 1:
        raise UserError("many runs are started by one process, without torchrun: `workers` says how many at once")
    if not works:
        return {}
    here = how.workers == 0
    with _pool(how, device) as pool, _stop_requests(at_once=here) as caught, live_lines(show=not here) as show:
        state = _State(works, folder, pool, how.retries, after, time_limit)
        try:
            while state.going:
                state.go()
                show(state.lines())
                if caught:
                    raise KeyboardInterrupt
            if state.running:  # the time is up
                pool.stop(state.running)
                state.count_finished()
        except KeyboardInterrupt as asked:
            pool.stop(state.running)
            state.count_finished()
            told = f"stopped: {state.done} of {len(works)} runs are done; the same command goes on"
            signum = caught[0] if caught else getattr(asked, "signum", signal.SIGINT)
            raise Stopped(told, signum) from None
        except BaseException:
            pool.stop(state.running)
            raise
    return state.failed


class Stopped(KeyboardInterrupt):
    """All runs, by Ctrl-C or SIGTERM."""

    def __init__(self, message: str, signum: int) -> None:
        super().__init__(message)
        self.signum = signum


class _State:
    """Which runs wait, which are under way, and what became of the others."""

    def __init__(
        self,
        works: Sequence[Work],
        folder: Path,
        pool: Pool,
        retries: int,
        after: Callable[[], None],
        time_limit: float | None,
    ) -> None:
        self.end = math.inf if time_limit is None else time.monotonic() + time_limit
        self.folder, self.pool, self.retries, self.after = folder, pool, retries, after
        self.total, self.waiting = len(works), deque(works)
        self.running: dict[Any, tuple[Work, float]] = {}  # by handle, with when it was started
        self.attempts: Counter[str] = Counter()
        self.seconds: list[float] = []  # that each finished one took
        self.failed: dict[str, str] = {}
        self.pace = 1.0  # time taken over time expected, of the last run

    @property
    def going(self) -> bool:
        return bool(self.waiting or self.running) and time.monotonic() < self.end

    @property
    def done(self) -> int:
        return len(self.seconds)

    def go(self) -> None:
        """Start what there is room for, and see what has ended."""
        while self.waiting and len(self.running) < self.pool.places and (work := self._fitting()) is not None:
            self._start(work)
        for handle, status in self.pool.ended(self.running).items():
            self._end(*self.running.pop(handle), status)

    def _fitting(self) -> Work | None:
        """The first that is done in time; those before it are left for another time."""
        while self.waiting:
            work = self.waiting.popleft()
            if time.monotonic() + self.pace * work.seconds <= self.end:
                return work
            tell(f"{work.title}: not started, it would take about {duration(self.pace * work.seconds)}")
        return None

    def _start(self, work: Work) -> None:
        place = self.folder / work.name
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the folder {place}: {error.strerror}") from None
        self.attempts[work.name] += 1
        if self.attempts[work.name] == 1:
            tell(f"{work.title} ({len(self.attempts)} of {self.total}{self.left(1 + len(self.waiting))})")
        began = time.monotonic()
        self.running[self.pool.start(work, place)] = (work, began)

    def _end(self, work: Work, began: float, status: int) -> None:
        if status == 0:
            self.seconds.append(time.monotonic() - began)
            self.pace = self.seconds[-1] / work.seconds if work.seconds else 1.0
            tell(f"{work.title}: done in {duration(self.seconds[-1])}")
            try:
                self.after()
            except Exception as error:  # no reason to lose the other runs
                tell(f"after {work.title}: {first_line(error)}")
            return
        reason, tries = _reason(status, self.folder / work.name), self.attempts[work.name]
        if status != MISTAKE and tries <= self.retries:
            tell(f"{work.title}: {reason}; taken up again ({tries} of {self.retries})")
            self.waiting.appendleft(work)
        else:
            tell(f"{work.title}: failed: {reason} (see {self.folder / work.name / LOG})")
            self.failed[work.title] = reason

    def count_finished(self) -> None:
        """Those that came to their end while they were stopped."""
        for handle, status in self.pool.ended(self.running).items():
            if status == 0:
                self._end(*self.running.pop(handle), status)

    def left(self, waiting: int) -> str:
        now = time.monotonic()
        elapsed = [now - began for _, began in self.running.values()]
        seconds = time_left(self.seconds, elapsed, waiting, self.pool.places)
        return "" if seconds is None else f", about {duration(seconds)} left"

    def lines(self) -> list[str]:
        """What is under way, with its last words, and how far all is."""
        under_way = [f"{work.title}: {_last_words(self.folder / work.name)}" for work, _ in self.running.values()]
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return [*under_way, f"{self.done} of {self.total} done{failed}{self.left(len(self.waiting))}"]


def time_left(taken: Sequence[float], elapsed: Sequence[float], waiting: int, places: int) -> float | None:
    """Until all are done, if each takes as long as those before did on average: some run already, others wait."""
    if not taken:
        return None
    mean = sum(taken) / len(taken)
    work = mean * waiting + sum(max(0.0, mean - seconds) for seconds in elapsed)
    return work / min(places, max(1, waiting + len(elapsed)))


def _reason(status: int, folder: Path) -> str:
    if status < 0:
        return "killed by " + next((known.name for known in signal.Signals if known == -status), f"signal {-status}")
    return "its Ray worker died" if status == LOST else _last_words(folder) or f"status {status}"


def _last_words(folder: Path) -> str:
    try:
        with open(folder / LOG, "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 2000))
            lines = log.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip().removeprefix("hypersphere: ") for line in reversed(lines) if line.strip()), "")


@contextlib.contextmanager
def _pool(how: FanOut, device: str) -> Iterator[Pool]:
    how.check()
    if how.ray is not None:
        with connected(how.ray) as ray:
            yield Cluster(ray, how.workers, device)
    else:
        yield Here() if how.workers == 0 else Processes(how.workers, device)


@contextlib.contextmanager
def _stop_requests(at_once: bool) -> Iterator[list[int]]:
    """Notes SIGINT and SIGTERM, so that no process is missed that is being started; a second one acts at once."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def request(signum: int, frame: Any) -> None:
        caught.append(signum)
        if at_once or len(caught) > 1:
            raise KeyboardInterrupt

    before = {s: signal.signal(s, request) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
