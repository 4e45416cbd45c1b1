"""How far a task is and how long it still takes, for whoever runs something long."""

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from hypersphere.errors import UserError
from hypersphere.util.launch import is_first

PLAIN_EVERY = 30.0  # seconds between lines where there is no terminal


def tell(message: str) -> None:
    """One line, on standard error, of the first process of a job."""
    if is_first():
        print(f"hypersphere: {message}", file=sys.stderr, flush=True)


@cache
def tell_once(message: str) -> None:
    """Of what is looked at several times."""
    tell(message)


def counted(number: int, of: str) -> str:
    """1 run, 2 runs."""
    return f"{number:,} {of}" + "s" * (number != 1)


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    if hours < 72:
        return f"{hours:.1f} h"
    return f"{hours / 24:.0f} days" if hours < 9000 else f"{hours / 8766:,.1f} years"


def parse_duration(text: str) -> float:
    """Seconds of 90s, 25m, 25min, 1.5h, 1h 30m or 2d.

    Raises:
        UserError: If it is none of these.
    """
    units = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
    parts = re.findall(r"(\d+(?:\.\d+)?) *(min|[smhd])", text)
    if not parts or not re.fullmatch(r"(\s*\d+(\.\d+)? *(min|[smhd]))+", text):
        raise UserError(f"{text!r} is not a duration: write it as 90s, 25m or 1h30m")
    return sum(float(number) * units[unit] for number, unit in parts)


class Progress:
    """Told how far a task is; shows nothing."""

    def update(self, done: int, note: str = "") -> None: ...


@contextlib.contextmanager
def progress_bar(title: str, total: int, start: int = 0, show: bool = True) -> Iterator[Progress]:
    """A bar with the time left on a terminal or in a notebook; elsewhere a line now and then. On standard error."""
    if not show:
        yield Progress()
        return
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal or console.is_jupyter:
        with _bar(title, total, start, console) as bar:
            yield bar
    else:
        yield _Lines(title, total, start)


class _Lines(Progress):
    def __init__(self, title: str, total: int, start: int) -> None:
        self.title, self.total, self.start, self.done, self.note = title, total, start, start, ""
        self.began = self.told = time.monotonic()

    def update(self, done: int, note: str = "") -> None:
        self.note = note or self.note
        now = time.monotonic()
        if done == self.done or (now - self.told < PLAIN_EVERY and done < self.total):
            return
        self.told, self.done = now, done
        left = (now - self.began) / max(1, done - self.start) * (self.total - done)
        print(
            f"{self.title}: {100 * done // self.total} %, {duration(left)} left {self.note}",
            file=sys.stderr,
            flush=True,
        )


@contextlib.contextmanager
def _bar(title: str, total: int, start: int, console: Any) -> Iterator[Progress]:
    from rich import progress as rich

    columns = (
        rich.TextColumn("{task.description}", markup=False),  # a path may have brackets
        rich.BarColumn(bar_width=24),
        rich.TaskProgressColumn(),
        rich.TimeRemainingColumn(elapsed_when_finished=True),
        rich.TextColumn("{task.fields[left]} {task.fields[note]}", markup=False),
    )
    with rich.Progress(*columns, console=console, speed_estimate_period=60) as bars:
        task = bars.add_task(title, total=total, completed=start, note="", left="left")

        class Bar(Progress):
            def update(self, done: int, note: str = "") -> None:
                bars.update(task, completed=done, left="left" if done < total else "in all")
                if note:
                    bars.update(task, note=note)

        yield Bar()


def table_console() -> Any:
    """For tables, on standard output: in a file or a pipe no number is cut off, nowhere what a name has in brackets."""
    from rich.console import Console

    bound = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if bound else 160, markup=False)


@contextlib.contextmanager
def live_lines(show: bool = True) -> Iterator[Callable[[Sequence[str]], None]]:
    """Lines that change in place, on a terminal or in a notebook; elsewhere nothing. On standard error."""
    from rich.console import Console

    console = Console(stderr=True)
    if not show or not (console.is_terminal or console.is_jupyter):
        yield lambda lines: None
        return
    from rich.live import Live
    from rich.text import Text

    with Live(console=console, transient=True, refresh_per_second=4) as live:
        yield lambda lines: live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"))
