"""How much memory is free, and numbers of bytes in words."""

import contextlib

import torch


def free_memory(device: torch.device) -> int | None:
    """Bytes of memory that are free on a device, or None if that is unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    known = [free for free in (_of_machine(), _of_container()) if free is not None]
    return min(known) if known else None


def _of_machine() -> int | None:
    with contextlib.suppress(OSError, ValueError, StopIteration), open("/proc/meminfo", encoding="ascii") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    return None


def _of_container() -> int | None:
    """What the control group of this process may still take."""
    with contextlib.suppress(OSError, ValueError):
        # "max" is no number: unlimited
        most, used = (int(_read(f"/sys/fs/cgroup/{name}")) for name in ("memory.max", "memory.current"))
        cached = dict(line.split() for line in _read("/sys/fs/cgroup/memory.stat").splitlines())
        return most - used + int(cached.get("inactive_file", 0))
    return None


def _read(file: str) -> str:
    with open(file, encoding="ascii") as content:
        return content.read().strip()


def in_bytes(number: float) -> str:
    """A number of bytes in words.

    Example:
        >>> in_bytes(2.2e12), in_bytes(16e9), in_bytes(3.1e6)
        ('2.2 TB', '16 GB', '3.1 MB')
    """
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if number < 1000 or unit == "PB":
            return f"{number:.3g} {unit}"
        number /= 1000
    raise AssertionError("unreachable")
