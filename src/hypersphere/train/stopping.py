"""Signals that stop a run after it has saved a checkpoint."""

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from hypersphere.util.launch import launcher_is_gone


class Interrupted(KeyboardInterrupt):
    """The run was stopped by a signal, after it had saved a checkpoint.

    Args:
        step: The step of the checkpoint.
        signum: The signal.

    Example:
        >>> import signal
        >>> from hypersphere.train import Interrupted
        >>> str(Interrupted(12, signal.SIGTERM))
        'stopped at step 12'
    """

    def __init__(self, step: int, signum: int) -> None:
        super().__init__(f"stopped at step {step}")
        self.step, self.signum = step, signum


def asked(stop: list[int]) -> int:
    """The signal to stop, or 0. A process whose launcher is gone stops too."""
    return stop[0] if stop else signal.SIGTERM if launcher_is_gone() else 0


@contextlib.contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Collect the first SIGINT or SIGTERM; a second one acts immediately. Ignored signals stay ignored."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    before = {s: handler for s, handler in handlers.items() if handler is not signal.SIG_IGN}

    def request(signum: int, frame: Any) -> None:
        caught.append(signum)
        _restore_handlers(before)

    for s in before:
        signal.signal(s, request)
    try:
        yield caught
    finally:
        _restore_handlers(before)


@contextlib.contextmanager
def undisturbed(caught: list[int]) -> Iterator[None]:
    """Only collect SIGINT and SIGTERM, so that they cannot interrupt a checkpoint.

    Workers that end by them must not either, so SIGCHLD, at which torch would raise, is reset.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.signal(s, lambda signum, frame: caught.append(signum)) for s in (signal.SIGINT, signal.SIGTERM)}
    if hasattr(signal, "SIGCHLD"):
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        _restore_handlers(before)


def _restore_handlers(handlers: Mapping[signal.Signals, Any]) -> None:
    for s, handler in handlers.items():
        signal.signal(s, handler)
