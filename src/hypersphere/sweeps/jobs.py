"""Jobs: runs from their configs to their results."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from hypersphere.config import Config
from hypersphere.diagnostics import angle_counts
from hypersphere.errors import Diverged, RunsFailed
from hypersphere.runs.machine import pick_device, provenance
from hypersphere.runs.pretraining import agreeing, go_on, start
from hypersphere.runs.results import Result, run_name
from hypersphere.runs.run import Run, evaluate_on, held_out_features, load_config, random_encoder
from hypersphere.sweeps import FanOut, Work, fan_out
from hypersphere.util.files import make_folder
from hypersphere.util.run_files import is_run


class Job(NamedTuple):
    """One run to make and to evaluate.

    Attributes:
        cell: Cell of a table that its result belongs to.
        title: Name in messages.
        config: Config of the run.
        probes: Probes to evaluate it with.
        trained: False for a random encoder, which is evaluated only.
    """

    cell: str
    title: str
    config: Config
    probes: tuple[str, ...]
    trained: bool = True

    @property
    def name(self) -> str:
        """Name of the run's folder, and of its file in the folder of results."""
        return run_name(self.cell, self.config)

    def __str__(self) -> str:
        return self.title


def run_jobs(
    jobs: Sequence[Job],
    results: Path,
    runs: Path,
    how: FanOut,
    *,
    after: Callable[[], None] = lambda: None,
    progress: bool = True,
    seconds: Mapping[str, float] | None = None,
    time_limit: float | None = None,
    **where: Any,
) -> dict[str, str]:
    """Make the runs of all jobs, and write their results.

    Args:
        jobs: The runs to make.
        results: Folder of the results, a file each.
        runs: Folder of the runs and their logs. Runs that were begun there are continued.
        how: How many runs at once, and where.
        after: Called after each run that succeeds.
        progress: Whether runs show their progress.
        seconds: Expected duration of the jobs by name, for a `time_limit`.
        time_limit: Seconds for all runs (see `fan_out`).
        **where: Options that do not change results, such as `device` and `root`.

    Returns:
        The reasons why runs failed, by title.
    """
    make_folder(results)
    call = partial(finish, results=results, runs=runs, progress=progress, **where)
    works = [Work(job.name, job.title, partial(call, job), (seconds or {}).get(job.name, 0.0)) for job in jobs]
    devices = {where.get("device", job.config.device) for job in jobs}
    device = devices.pop() if len(devices) == 1 else "auto"
    return fan_out(works, runs / "logs", how, device, after, time_limit)


def check_failed(failed: dict[str, str], total: int) -> None:
    """Raise an error if runs failed.

    Args:
        failed: Reasons by title, as `run_jobs` returns them.
        total: Number of runs.

    Raises:
        RunsFailed: If `failed` is not empty.
    """
    if failed:
        title, reason = list(failed.items())[-1]
        raise RunsFailed(
            f"{len(failed)} of {total} runs failed, such as {title} ({reason}); run the command again to retry"
        )


def finish(job: Job, results: Path, runs: Path, *, progress: bool = True, **where: Any) -> None:
    """Run a job and write its result."""
    run_job(job, runs, progress=progress, **where).write(results)


def run_job(job: Job, runs: Path, *, progress: bool = True, **where: Any) -> Result:
    """Pretrain, or continue the run if it was begun, and evaluate on the split that the config holds out.

    Args:
        job: The run to make.
        runs: Folder of the runs.
        progress: Whether to show progress.
        **where: Options that do not change results, such as `device` and `root`.

    Returns:
        The result; a run that diverged is a result, too.
    """
    about = provenance(pick_device(where.get("device", job.config.device)))
    if not job.trained:
        encoder, config = random_encoder(job.config.replace(**where)), job.config
        found = evaluate_on(encoder, config.replace(**where), job.probes, config.holdout, progress=progress)
        return Result(job.cell, config, config.hash, found, 0.0, about, angles=_angles(encoder, config, where))
    try:
        run = _trained(job, runs / job.name, progress, where)
    except Diverged as error:
        return Result(job.cell, job.config, job.config.hash, {}, 0.0, about, str(error).split(":")[0])
    about |= {name: value for name, value in run.written_by.items() if name == "shared"}  # at its start
    found = run.evaluate(job.probes, progress=progress) if job.probes and run.labelled else {}
    history = [line for line in run.metrics if "epoch" in line]
    angles = _angles(run.encoder, run.config, where)
    return Result(job.cell, run.config, run.config.hash, found, run.seconds, about, None, history, angles)


def _angles(encoder: nn.Module, config: Config, where: dict[str, Any]) -> list[int] | None:
    if config.dimensions != 2:
        return None
    return angle_counts(held_out_features(encoder, config.replace(**where), "test")).tolist()


def _trained(job: Job, path: Path, progress: bool, where: dict[str, Any]) -> Run:
    if is_run(path):
        saved = load_config(path)
        now = job.config.replace(**where, out=saved.out, precision=saved.precision)
        return go_on(path, agreeing(saved, now, path), progress=progress)
    path.parent.mkdir(parents=True, exist_ok=True)
    return start(job.config.replace(**where, out=path), progress=progress)
