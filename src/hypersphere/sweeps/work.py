"""What is to be done, how many at once and where."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from hypersphere.errors import UserError
from hypersphere.util.progress import counted, tell

GRACE = 60.0  # seconds for the runs to save themselves when all are stopped; then they are killed
TICK = 0.2  # seconds between looks
MISTAKE, LOST = 2, 255  # status of what would fail again in the same way; of a Ray worker that died
LOG = "log.txt"


class Work(NamedTuple):
    name: str  # of its folder, which only one process works in at a time, and which holds its log
    title: str  # for people
    call: Callable[[], None]  # that can be pickled: a function of a module, with its arguments
    seconds: float = 0.0  # that it is expected to take


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
        for name in ("workers", "retries"):
            if (value := getattr(self, name)) is not None and value < 0:
                raise UserError(f"`{name}` must be at least 0, not {value}")
        if self.ray is not None and self.workers == 0:
            raise UserError("`workers` 0 and `ray` exclude each other")


class Pool(Protocol):
    """Where runs are made."""

    places: int  # runs at once

    def start(self, work: Work, folder: Path) -> Any: ...

    def ended(self, running: Collection[Any]) -> dict[Any, int]:
        """Of those started, the ones that are over, with their status: 0, or what went wrong. Waits a moment."""

    def stop(self, running: Collection[Any]) -> None:
        """Let all save themselves, and end."""


def tell_stopping(runs: int) -> None:
    if runs:
        tell(f"stopping: {counted(runs, 'run')} to save first, which may take {GRACE:.0f} s; once more kills them")
