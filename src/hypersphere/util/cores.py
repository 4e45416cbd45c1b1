"""The CPU cores that this process may use; all cores if the system does not say (macOS)."""

import os
from collections.abc import Iterable

MOST_PROCESSES = 1024  # that a user may ask for: a mistyped number would take the machine down


def available_cores() -> list[int]:
    """Numbers of the cores that this process may use, sorted."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def keep_to(cores: Iterable[int]) -> None:
    """Pin this process to the given cores, if the system supports it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
