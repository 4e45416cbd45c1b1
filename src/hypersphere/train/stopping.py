"""Runs that are asked to stop, and save themselves first."""

import contextlib
import signal
import threading
from collections.abc import Iterator

from hypersphere.util.launch import launcher_is_gone
from hypersphere.util.signals import restore_handlers


class Interrupted(KeyboardInterrupt):
    """A run that was asked to stop, and saved itself first."""

    def __init__(self, step: int, signum: int) -> None:
        super().__init__(f"stopped at step {step}")
        self.step, self.signum = step, signum


def asked(stop: list[int]) -> int:
    """The signal that asks to stop, or 0. Processes whose launcher is gone stop as well."""
    return stop[0] if stop else signal.SIGTERM if launcher_is_gone() else 0


@contextlib.contextmanager
def undisturbed(caught: list[int]) -> Iterator[None]:
    """SIGINT and SIGTERM are only collected: impatience must not cost the checkpoint. Nor must workers that end of it,
    at which torch would raise."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.signal(s, lambda signum, frame: caught.append(signum)) for s in (signal.SIGINT, signal.SIGTERM)}
    if hasattr(signal, "SIGCHLD"):
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        restore_handlers(before)
