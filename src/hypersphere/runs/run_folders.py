"""The folder of a new run, and the one that a restarted job began."""

import contextlib
import glob
from pathlib import Path

from hypersphere.config import Config
from hypersphere.errors import UserError
from hypersphere.runs.run import RunRecord
from hypersphere.util.files import next_free_folder
from hypersphere.util.launcher import job
from hypersphere.util.records import read_record
from hypersphere.util.run_files import RUN_RECORD, is_run


def find_begun(config: Config) -> Path | None:
    """The run that this job began before torchrun or a scheduler restarted it, if there is one.

    It is the run in the folder `out`, or the one in runs/ that has this job's name.
    """
    if config.out is not None:
        begun = config.out if is_run(config.out) else None
    else:
        named = default_folder(config)
        alike = named.parent.glob(f"{glob.escape(named.name)}*")
        begun = next((run for run in alike if _job_of(run) == job()), None)
    return begun


def _job_of(run: Path) -> str | None:
    with contextlib.suppress(UserError):
        return read_record(run / RUN_RECORD, RunRecord).get("job")
    return None


def default_folder(config: Config) -> Path:
    return Path("runs") / f"{config.title}-{config.data_name}-{config.hash[:8]}"


def new_folder(config: Config) -> Path:
    """The folder `out`, which must be empty, or the next free one in runs/."""
    folder = checked_out(config)
    return folder if folder.is_dir() and folder == config.out else next_free_folder(folder)


def checked_out(config: Config) -> Path:
    """The folder `out`, after checking that it is empty or does not exist; or that of a run which names none."""
    if config.out is None:
        return default_folder(config)
    if config.out.is_dir() and all(file.name.startswith((".lock", f"{RUN_RECORD}.")) for file in config.out.iterdir()):
        return config.out  # empty, or of a run that was killed before it wrote run.json
    if config.out.is_file():
        raise UserError(f"`out` {config.out} is a file: choose a folder")
    if config.out.exists():
        resume = f"continue with `resume` {config.out}, or " if is_run(config.out) else ""
        raise UserError(f"{config.out} is not empty: {resume}choose another `out`")
    return config.out
