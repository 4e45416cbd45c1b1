"""What a launcher, such as torchrun, has told this process: nothing, where there is none."""

import os
import socket


def launched() -> int:
    """How many processes there are for this job."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "RANK" in os.environ else 1


def is_first() -> bool:
    """Of those: who prints."""
    return launched() == 1 or os.environ["RANK"] == "0"


_launcher: list[int] = []  # the parent of this process, when it joined its job


def remember_launcher() -> None:
    _launcher[:] = [os.getppid()]


def launcher_is_gone() -> bool:
    """Nobody would end this process, then."""
    return launched() > 1 and _launcher not in ([], [os.getppid()])


def place_on_machine() -> tuple[int, int]:
    """Which of how many processes on this machine this is."""
    if launched() == 1:
        return 0, 1
    return int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def job() -> str | None:
    """A name that the processes of a job share, and those that torchrun starts in their place; None without it."""
    told = os.environ.get("TORCHELASTIC_RUN_ID")
    return f"{socket.gethostname()}-{os.getppid()}-{_born(os.getppid())}" if told == "none" else told


def _born(process: int) -> str:
    """When it was started, in ticks since the machine was: numbers of processes come again, in a container soon."""
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""
