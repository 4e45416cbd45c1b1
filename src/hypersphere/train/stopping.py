"""Signals that stop a run after it has saved a checkpoint."""

import contextlib
import signal
import threading
from collections.abc import Iterator

from hypersphere.util.launcher import launcher_has_ended
from hypersphere.util.signals import active_handlers, restore_handlers


class RunInterrupted(KeyboardInterrupt):
    """The run was stopped by a signal, after it had saved a checkpoint.

    Args:
        step: The step of the checkpoint.
        signum: The signal.

    Example:
        >>> import signal
        >>> from hypersphere.train import RunInterrupted
        >>> str(RunInterrupted(12, signal.SIGTERM))
        'stopped at step 12'
    """

    def __init__(self, step: int, signum: int) -> None:
        super().__init__(f"stopped at step {step}")
        self.step, self.signum = step, signum


def asked(stop: list[int]) -> int:
    """The signal to stop, or 0. A process whose launcher is gone stops too."""
    return stop[0] if stop else signal.SIGTERM if launcher_has_ended() else 0


@contextlib.contextmanager
def without_interrupts(caught: list[int]) -> Iterator[None]:
    """Only collect signals to stop, so that they cannot interrupt a checkpoint."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = active_handlers()
    for s in before:
        signal.signal(s, lambda signum, frame: caught.append(signum))
    try:
        yield
    finally:
        restore_handlers(before)
