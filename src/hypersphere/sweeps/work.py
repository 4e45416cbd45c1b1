"""What to run, how many runs at once, and where."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from hypersphere.errors import UserError
from hypersphere.util.console import notify, pluralize
from hypersphere.util.cores import MOST_PROCESSES

GRACE = 60.0  # seconds that stopped runs have to save themselves before they are killed
TICK = 0.2  # seconds between two looks at the running processes
USER_ERROR, LOST = 2, 255  # status of a run that would fail again in the same way; of a Ray worker that died
LOG = "log.txt"


class Work(NamedTuple):
    """One run.

    Attributes:
        name: Name of its folder, which holds its log and in which only one process works at a time.
        title: Name in messages.
        call: What to do; it must be picklable, such as a `functools.partial` of a module's function.
        seconds: Expected duration.
    """

    name: str
    title: str
    call: Callable[[], None]
    seconds: float = 0.0


@dataclass(frozen=True)
class FanOut:
    """How many runs at once, and where."""

    workers: int | None = None
    """Runs at the same time, each in a process of its own. 0: one after the other in this process. None: one per GPU,
    or one; with --ray one per GPU or core of the cluster."""
    ray: str | None = None
    """Use the Ray cluster at this address; without an address that of this machine, which is started if needed. All
    machines need the folders of runs, results and data under the same paths."""
    retries: int = 2
    """How often to restart a run whose process died."""

    def check(self) -> None:
        """Check the options.

        Raises:
            UserError: If a number is negative or too large, or options contradict each other.
        """
        for name in ("workers", "retries"):
            if (value := getattr(self, name)) is not None and value < 0:
                raise UserError(f"`{name}` must be at least 0, got {value}")
        if self.ray is None and (self.workers or 0) > MOST_PROCESSES:
            raise UserError(f"`workers` must be at most {MOST_PROCESSES} on one machine, got {self.workers}")
        if self.ray is not None and self.workers == 0:
            raise UserError("`workers` 0 and `ray` exclude each other: leave one of them out")


class Pool(Protocol):
    """A place where runs are made."""

    places: int  # runs at once

    def start(self, work: Work, folder: Path) -> Any:
        """Start a run and return a handle for it."""

    def ended(self, running: Collection[Any]) -> dict[Any, int]:
        """Wait a moment, and return the exit status of those running that have ended."""

    def stop(self, running: Collection[Any]) -> None:
        """Let all runs save themselves, and end them."""


def tell_stopping(runs: int) -> None:
    """Print that runs are being stopped."""
    if runs:
        notify(f"stopping {pluralize(runs, 'run')}: saving may take {GRACE:.0f} s; press Ctrl-C again to kill them")
