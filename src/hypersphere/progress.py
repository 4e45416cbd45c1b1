"""A bar with the time left, for whoever runs something long."""

import contextlib
from collections.abc import Iterator


class Progress:
    """Told how far a task is; shows nothing."""

    def update(self, done: int, note: str = "") -> None: ...


@contextlib.contextmanager
def progress_bar(title: str, total: int, start: int = 0, show: bool = True) -> Iterator[Progress]:
    """A bar with the time left, on a terminal or in a notebook; a plain line now and then elsewhere."""
    if not show:
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import (  # fmt: skip
        BarColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Bars(*columns, console=Console(stderr=True), speed_estimate_period=60) as bars:
        task = bars.add_task(title, total=total, completed=start, note="")

        class Bar(Progress):
            def update(self, done: int, note: str = "") -> None:
                bars.update(task, completed=done)
                if note:
                    bars.update(task, note=note)

        yield Bar()
