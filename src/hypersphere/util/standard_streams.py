"""Standard output and standard error that never end a program: a full disk or a closed pipe costs text, not a run."""

import contextlib
import errno
import io
import os
import sys


class _Tolerant(io.FileIO):
    """A file to write to that keeps its first error instead of raising it, and writes nothing from then on."""

    error: OSError | None = None

    def write(self, data) -> int:  # type: ignore[no-untyped-def]
        if self.error is None:
            try:
                return super().write(data) or len(data)  # None if it would block: that text is lost
            except OSError as error:
                self.error = error
        return len(data)


def tolerate_output_errors() -> None:
    """Make `sys.stdout` and `sys.stderr` of this process ignore errors when they are written.

    A stream that was closed before the start is connected to nothing, so that no other file gets its number. Streams
    that something else has replaced, such as a notebook or a test, are left as they are.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None or (stream is getattr(sys, f"__{name}__") and not isinstance(_raw(stream), _Tolerant)):
            encoding = getattr(stream, "encoding", None) or "utf-8"
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.flush()
            buffer = io.BufferedWriter(_Tolerant(number, "wb", closefd=False))
            lines = number == 2 or os.isatty(number)
            # a terminal without ± shows a question mark
            made = io.TextIOWrapper(buffer, encoding, errors="replace", line_buffering=lines)
            setattr(sys, name, made)
            setattr(sys, f"__{name}__", made)


def lost_output() -> str | None:
    """Why text for standard output was lost, or None. A reader that closes a pipe has read what it wanted."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    error = getattr(_raw(sys.stdout), "error", None)
    return None if error is None or error.errno == errno.EPIPE else error.strerror


def _raw(stream: object) -> object:
    return getattr(getattr(stream, "buffer", None), "raw", None)
