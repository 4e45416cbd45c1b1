"""Messages, progress bars and tables on the console."""

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from hypersphere.errors import UserError
from hypersphere.util.launcher import is_main_process

PLAIN_EVERY = 30.0  # seconds between lines if there is no terminal
MOMENT = 2.0  # seconds of a task that needs no line


_rewrite: Callable[[str], str] = str  # of messages: how options are shown


@contextlib.contextmanager
def rewritten_messages(rewrite: Callable[[str], str]) -> Iterator[None]:
    """Rewrite all messages inside, such as to options of the command line."""
    global _rewrite
    before, _rewrite = _rewrite, rewrite
    try:
        yield
    finally:
        _rewrite = before


def as_message(text: str) -> str:
    """A line that hypersphere prints."""
    return f"hypersphere: {_rewrite(text)}"


def notify(message: str) -> None:
    """Print one line to standard error, in the first process of a job only."""
    if is_main_process():
        print_error(as_message(message))


def print_error(line: str) -> None:
    """Print a line to standard error; if that cannot be written, the program goes on without it."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


@cache
def notify_once(message: str) -> None:
    """As `notify`, but print the same message only once."""
    notify(message)


def pluralize(number: int, of: str) -> str:
    """A number with its noun.

    Example:
        >>> pluralize(1, "run"), pluralize(2, "run")
        ('1 run', '2 runs')
    """
    return f"{number:,} {of}" + "s" * (number != 1)


def duration(seconds: float) -> str:
    """A duration in words.

    Example:
        >>> duration(90), duration(5400), duration(10800)
        ('90 s', '90 min', '3.0 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    if hours < 72:
        return f"{hours:.1f} h"
    return f"{hours / 24:.0f} days" if hours < 9000 else f"{hours / 8766:,.1f} years"


def parse_duration(text: str) -> float:
    """Seconds in a text such as 90s, 25m, 25min, 1.5h, 1h 30m or 2d.

    Raises:
        UserError: If the text is not a duration.

    Example:
        >>> parse_duration("1h 30m")
        5400.0
    """
    units = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
    parts = re.findall(r"(\d+(?:\.\d+)?) *(min|[smhd])", text)
    if not parts or not re.fullmatch(r"(\s*\d+(\.\d+)? *(min|[smhd]))+", text):
        raise UserError(f"{text!r} is not a duration: write it as 90s, 25m or 1h30m")
    return sum(float(number) * units[unit] for number, unit in parts)


class Progress:
    """Receives the progress of a task; this one shows nothing."""

    def update(self, done: int, note: str = "") -> None:
        """Report how many steps are done; `note` is shown beside the bar."""

    def line(self, text: str) -> None:
        """Show a line that stays, above the bar."""


@contextlib.contextmanager
def progress_bar(title: str, total: int, start: int = 0, show: bool = True) -> Iterator[Progress]:
    """Show progress: a bar on a terminal or in a notebook, otherwise a line on standard error now and then.

    Args:
        title: Name of the task.
        total: Number of steps.
        start: Steps that were done before.
        show: If False, show nothing.
    """
    if not show:
        yield Progress()
        return
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_jupyter:
        with contextlib.closing(_Notebook(title, total, start)) as shown:
            yield shown
    elif _is_terminal(console):
        with _bar(title, total, start, console) as bar:
            yield bar
    else:
        yield _Lines(title, total, start)


def _is_terminal(console: Any) -> bool:
    """Whether bars can be drawn; not in a file or a pipe, even if variables such as FORCE_COLOR ask for colours."""
    with contextlib.suppress(AttributeError, ValueError):  # standard error may be closed, or a stand-in
        return console.is_terminal and not console.is_dumb_terminal and sys.stderr.isatty()
    return False


class _Task(Progress):
    """How far a task is, in words."""

    def __init__(self, title: str, total: int, start: int) -> None:
        self.title, self.total, self.start, self.done, self.note = title, total, start, start, ""
        self.began = time.monotonic()

    def remaining(self) -> str:
        """Time left, or time in all if the task is done."""
        elapsed = time.monotonic() - self.began
        if self.done >= self.total:
            return f"{duration(elapsed)} in all"
        return f"{duration(elapsed / max(1, self.done - self.start) * (self.total - self.done))} left"


class _Lines(_Task):
    def __init__(self, title: str, total: int, start: int) -> None:
        super().__init__(title, total, start)
        self.printed, self.has_lines = self.began, False

    def update(self, done: int, note: str = "") -> None:
        self.note = note or self.note
        now = time.monotonic()
        quiet = done < self.total or self.has_lines or now - self.began < MOMENT
        if done == self.done or (now - self.printed < PLAIN_EVERY and quiet):
            return
        self.printed, self.done = now, done
        print_error(f"{self.title}: {100 * done // self.total} %, {self.remaining()} {self.note}".rstrip())

    def line(self, text: str) -> None:
        print_error(text)
        self.printed, self.has_lines = time.monotonic(), True


class _Notebook(_Task):
    """One output of a notebook cell, which is replaced: the last lines, and a bar below them.

    It needs no widgets, so it is saved with the notebook, and shows the end of the task, too.
    """

    EVERY, KEPT, WIDTH = 0.25, 20, 24  # seconds between updates, lines, blocks of a bar

    def __init__(self, title: str, total: int, start: int) -> None:
        super().__init__(title, total, start)
        self.lines: list[str] = []
        self.handle: Any = None
        self.shown = 0.0
        self._show()

    def update(self, done: int, note: str = "") -> None:
        self.done, self.note = done, note or self.note
        if time.monotonic() - self.shown >= self.EVERY:
            self._show()

    def line(self, text: str) -> None:
        self.lines = [*self.lines, text][-self.KEPT :]
        self._show()

    def close(self) -> None:
        self._show()

    def _show(self) -> None:
        from IPython.display import display  # type: ignore[import-not-found,unused-ignore]

        self.shown = time.monotonic()
        content = {"text/plain": "\n".join([*self.lines, self._bar()])}
        if self.handle is None:
            self.handle = display(content, raw=True, display_id=True)
        else:
            self.handle.update(content, raw=True)

    def _bar(self) -> str:
        share = self.done / max(1, self.total)
        full = min(self.WIDTH, int(self.WIDTH * share))
        blocks = "█" * full + "░" * (self.WIDTH - full)
        left = self.remaining() if self.done > self.start else ""
        return f"{self.title} {blocks} {100 * share:.0f} % {left} {self.note}".rstrip()


@contextlib.contextmanager
def _bar(title: str, total: int, start: int, console: Any) -> Iterator[Progress]:
    from rich import progress as rich
    from rich.text import Text

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

            def line(self, text: str) -> None:
                bars.console.print(Text(text), soft_wrap=True)

        yield Bar()


def table_console() -> Any:
    """A rich console for tables on standard output; in a file or a pipe it is wide enough to show every number."""
    from rich.console import Console

    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if has_width else 160, markup=False)  # markup would take brackets out of names


@contextlib.contextmanager
def live_lines(show: bool = True) -> Iterator[Callable[[Sequence[str]], None]]:
    """Lines on standard error that are updated in place, on a terminal or in a notebook.

    Elsewhere those that have changed are printed now and then: after half a minute, and later less often.

    Yields:
        A function that replaces the lines.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if not show or not (_is_terminal(console) or console.is_jupyter):
        yield _changed_lines() if show else lambda lines: None
        return
    from rich.live import Live
    from rich.text import Text

    with Live(console=console, transient=True, refresh_per_second=4) as live:
        yield lambda lines: live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"))


def _changed_lines() -> Callable[[Sequence[str]], None]:
    """Print the lines that have changed every `PLAIN_EVERY` seconds, and later after a twentieth of the time so far."""
    began = printed = time.monotonic()
    shown: Sequence[str] = ()

    def show(lines: Sequence[str]) -> None:
        nonlocal printed, shown
        now = time.monotonic()
        if now - printed >= max(PLAIN_EVERY, (now - began) / 20):
            for line in lines:
                if line not in shown:
                    print_error(line)
            printed, shown = now, lines

    return show
