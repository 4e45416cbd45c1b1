"""A limit on the time of a command."""

import contextlib
import signal


class TookTooLong(BaseException):
    """Not an Exception, which the code under test might handle."""


@contextlib.contextmanager
def limited(seconds):
    """Raise `TookTooLong` after so many seconds."""

    def stop(*_):
        raise TookTooLong(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
