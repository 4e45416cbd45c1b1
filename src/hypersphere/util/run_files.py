"""Names of files in the folder of a run, and which folders are runs."""

import os
from pathlib import Path

RUN_RECORD = "run.json"
CHECKPOINT, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"


def is_run(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is that of a run."""
    return (Path(folder) / RUN_RECORD).is_file()
