"""Handling of SIGINT, SIGTERM and SIGHUP (the terminal was closed), which ask a program to stop."""

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import Any

STOP_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextlib.contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Collect the first SIGINT, SIGTERM or SIGHUP instead of acting on it; a second one acts at once.

    Signals that the program ignores stay ignored. Outside the main thread, which alone receives signals, the list
    stays empty.

    Yields:
        A list that holds the signal's number as soon as it has arrived.
    """
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before = active_handlers()

    def request(signum: int, frame: Any) -> None:
        caught.append(signum)
        restore_handlers(before)

    for s in before:
        signal.signal(s, request)
    try:
        yield caught
    finally:
        restore_handlers(before)


def active_handlers() -> dict[signal.Signals, Any]:
    """The handlers of the stop signals, except those that the program ignores, as nohup makes it ignore SIGHUP."""
    handlers = {s: signal.getsignal(s) for s in STOP_SIGNALS}
    return {s: handler for s, handler in handlers.items() if handler is not signal.SIG_IGN}


def restore_handlers(handlers: Mapping[signal.Signals, Any]) -> None:
    """Install the given handler for each signal."""
    for s, handler in handlers.items():
        signal.signal(s, handler)
