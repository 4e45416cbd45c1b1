"""What a launcher such as torchrun has set in the environment of this process."""

import os
import socket


def launched() -> int:
    """Number of processes in this job; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "RANK" in os.environ else 1


def is_main_process() -> bool:
    """Whether this is rank 0, the process that prints."""
    return launched() == 1 or os.environ["RANK"] == "0"


_launcher: list[int] = []  # process id of the parent when this process joined its job


def remember_launcher() -> None:
    """Remember the parent process, so that `launcher_has_ended` notices when it ends."""
    _launcher[:] = [os.getppid()]


def launcher_has_ended() -> bool:
    """Whether the launcher has ended, so that nobody would end this process."""
    return launched() > 1 and _launcher not in ([], [os.getppid()])


def local_rank_and_size() -> tuple[int, int]:
    """Rank among the processes of this job on this machine, and their number."""
    if launched() == 1:
        return 0, 1
    return int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def job() -> str | None:
    """Name of this job, which processes that torchrun restarts share, too; None without torchrun."""
    run_id = os.environ.get("TORCHELASTIC_RUN_ID")
    return f"{socket.gethostname()}-{os.getppid()}-{_start_time(os.getppid())}" if run_id == "none" else run_id


def _start_time(process: int) -> str:
    """When a process was started, in ticks since boot: process ids are reused, in containers soon."""
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""
