"""The loop that starts runs as places become free, restarts runs that died, and shows the progress."""

import contextlib
import math
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hypersphere.errors import UserError, first_line
from hypersphere.sweeps.cluster import Cluster, connected
from hypersphere.sweeps.in_process import Here
from hypersphere.sweeps.processes import Processes
from hypersphere.sweeps.work import LOG, LOST, USER_ERROR, FanOut, Pool, Work
from hypersphere.util.console import duration, live_lines, notify
from hypersphere.util.files import make_folder
from hypersphere.util.launcher import launched
from hypersphere.util.signals import stop_requests


def fan_out(
    works: Sequence[Work],
    folder: Path,
    how: FanOut,
    device: str = "auto",
    after: Callable[[], None] = lambda: None,
    time_limit: float | None = None,
) -> dict[str, str]:
    """Make all runs, several at once.

    Args:
        works: The runs.
        folder: Folder of the logs; each run has a folder in it.
        how: How many runs at once, and where.
        device: Device of the runs: "auto" and "cuda" give each process a GPU.
        after: Called after each run that succeeds.
        time_limit: Seconds for all runs. A run that is not expected to finish in time is not started; runs that are
            still going at the end are stopped, and save themselves.

    Returns:
        The reasons why runs failed, by title.

    Raises:
        UserError: If the options contradict each other, or this process was started by a launcher.
        Stopped: If the user stops the runs.
    """
    if launched() > 1:
        raise UserError("start many runs from one process, without torchrun: `workers` sets how many run at once")
    if not works:
        return {}
    here = how.workers == 0  # runs handle signals themselves
    guard: contextlib.AbstractContextManager[list[int]] = contextlib.nullcontext([]) if here else stop_requests()
    with _pool(how, device) as pool, guard as caught, live_lines(show=not here) as show:
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
        except KeyboardInterrupt as request:
            pool.stop(state.running)
            state.count_finished()
            message = f"stopped: {state.done} of {len(works)} runs are done; the same command continues"
            signum = caught[0] if caught else getattr(request, "signum", signal.SIGINT)
            raise Stopped(message, signum) from None
        except BaseException:
            pool.stop(state.running)
            raise
    return state.failed


class Stopped(KeyboardInterrupt):
    """The user has stopped all runs, by Ctrl-C or SIGTERM."""

    def __init__(self, message: str, signum: int) -> None:
        super().__init__(message)
        self.signum = signum


class _State:
    """Which runs wait, which are running, and how the others ended."""

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
        self.running: dict[Any, tuple[Work, float]] = {}  # by handle, with the time of its start
        self.attempts: Counter[str] = Counter()
        self.seconds: list[float] = []  # durations of the finished runs
        self.failed: dict[str, str] = {}
        self.pace = 1.0  # actual over expected duration of the last run

    @property
    def going(self) -> bool:
        return bool(self.waiting or self.running) and time.monotonic() < self.end

    @property
    def done(self) -> int:
        return len(self.seconds)

    def go(self) -> None:
        """Start runs while there are free places, then handle those that have ended."""
        while self.waiting and len(self.running) < self.pool.places and (work := self._next_in_time()) is not None:
            self._start(work)
        for handle, status in self.pool.ended(self.running).items():
            self._end(*self.running.pop(handle), status)

    def _next_in_time(self) -> Work | None:
        """The next run that is expected to finish in time; those before it are dropped."""
        while self.waiting:
            work = self.waiting.popleft()
            if time.monotonic() + self.pace * work.seconds <= self.end:
                return work
            notify(f"{work.title}: not started, it would take about {duration(self.pace * work.seconds)}")
        return None

    def _start(self, work: Work) -> None:
        make_folder(self.folder / work.name)
        self.attempts[work.name] += 1
        if self.attempts[work.name] == 1:
            notify(f"{work.title} ({len(self.attempts)} of {self.total}{self.left(1 + len(self.waiting))})")
        began = time.monotonic()
        self.running[self.pool.start(work, self.folder / work.name)] = (work, began)

    def _end(self, work: Work, began: float, status: int) -> None:
        if status == 0:
            self.seconds.append(time.monotonic() - began)
            self.pace = self.seconds[-1] / work.seconds if work.seconds else 1.0
            notify(f"{work.title}: done in {duration(self.seconds[-1])}")
            try:
                self.after()
            except Exception as error:  # no reason to lose the other runs
                notify(f"after {work.title}: {first_line(error)}")
            return
        reason, tries = _reason(status, self.folder / work.name), self.attempts[work.name]
        if status != USER_ERROR and tries <= self.retries:
            notify(f"{work.title}: {reason}; restarting it ({tries} of {self.retries})")
            self.waiting.appendleft(work)
        else:
            notify(f"{work.title}: failed: {reason} (see {self.folder / work.name / LOG})")
            self.failed[work.title] = reason

    def count_finished(self) -> None:
        """Count the runs that finished while they were being stopped."""
        for handle, status in self.pool.ended(self.running).items():
            if status == 0:
                self._end(*self.running.pop(handle), status)

    def left(self, waiting: int) -> str:
        now = time.monotonic()
        elapsed = [now - began for _, began in self.running.values()]
        seconds = time_left(self.seconds, elapsed, waiting, self.pool.places)
        return "" if seconds is None else f", about {duration(seconds)} left"

    def lines(self) -> list[str]:
        """A line for each running run with the last line of its log, and one for all."""
        running = [f"{work.title}: {_last_line(self.folder / work.name)}" for work, _ in self.running.values()]
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return [*running, f"{self.done} of {self.total} done{failed}{self.left(len(self.waiting))}"]


def time_left(taken: Sequence[float], elapsed: Sequence[float], waiting: int, places: int) -> float | None:
    """Estimate when all runs will be done, if each takes as long as the finished ones on average.

    Args:
        taken: Seconds of the finished runs.
        elapsed: Seconds since the start of each running run.
        waiting: Number of runs that wait.
        places: Runs at once.

    Returns:
        Seconds, or None if no run has finished.

    Example:
        >>> time_left([10.0, 20.0], [], waiting=4, places=1)
        60.0
    """
    if not taken:
        return None
    mean = sum(taken) / len(taken)
    work = mean * waiting + sum(max(0.0, mean - seconds) for seconds in elapsed)
    return work / min(places, max(1, waiting + len(elapsed)))


def _reason(status: int, folder: Path) -> str:
    if status < 0:
        return "killed by " + next((known.name for known in signal.Signals if known == -status), f"signal {-status}")
    return "its Ray worker died" if status == LOST else _last_line(folder) or f"status {status}"


def _last_line(folder: Path) -> str:
    """The last line of a run's log that is not empty."""
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
