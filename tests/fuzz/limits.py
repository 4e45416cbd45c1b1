"""A limit on the time of a command."""

import contextlib
import signal


@contextlib.contextmanager
def limited(seconds):
    """Raise a TimeoutError after so many seconds."""

    def stop(*_):
        raise TimeoutError(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
