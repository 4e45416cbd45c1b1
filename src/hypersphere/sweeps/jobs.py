"""One run from its config to its result, and many of them."""

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
from hypersphere.runs.results import Result, name_of
from hypersphere.runs.run import Run, evaluate_on, held_out_features, load_config, random_encoder
from hypersphere.sweeps import FanOut, Work, fan_out
from hypersphere.util.files import make_folder


class Job(NamedTuple):
    """One run that is missing."""

    cell: str  # what its result is filed under
    title: str  # what people call it
    config: Config
    probes: tuple[str, ...]
    trained: bool = True  # False: a random encoder

    @property
    def name(self) -> str:
        return name_of(self.cell, self.config)

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
    """Results of all: why some have none, by title. `where`: device, root and the like, which change no result.
    `seconds`: that jobs are expected to take, by name, for those that must be done within a `time_limit`."""
    make_folder(results)
    call = partial(finish, results=results, runs=runs, progress=progress, **where)
    works = [Work(job.name, job.title, partial(call, job), (seconds or {}).get(job.name, 0.0)) for job in jobs]
    devices = {where.get("device", job.config.device) for job in jobs}
    device = devices.pop() if len(devices) == 1 else "auto"
    return fan_out(works, runs / "logs", how, device, after, time_limit)


def check_failed(failed: dict[str, str], total: int) -> None:
    if failed:
        title, reason = list(failed.items())[-1]
        raise RunsFailed(f"{len(failed)} of {total} runs failed, such as {title} ({reason}); say it again to retry")


def finish(job: Job, results: Path, runs: Path, *, progress: bool = True, **where: Any) -> None:
    run_job(job, runs, progress=progress, **where).write(results)


def run_job(job: Job, runs: Path, *, progress: bool = True, **where: Any) -> Result:
    """Pretrain, or go on with what was begun, and evaluate on what the config holds out."""
    about = provenance(pick_device(where.get("device", job.config.device)))
    if not job.trained:
        encoder, config = random_encoder(job.config.replace(**where)), job.config
        found = evaluate_on(encoder, config.replace(**where), job.probes, config.holdout, progress=progress)
        return Result(job.cell, config, config.hash, found, 0.0, about, angles=_angles(encoder, config, where))
    try:
        run = _trained(job, runs / job.name, progress, where)
    except Diverged as error:
        return Result(job.cell, job.config, job.config.hash, {}, 0.0, about, str(error).split(":")[0])
    about |= {name: told for name, told in run.written_by.items() if name == "shared"}  # it may have begun so
    found = run.evaluate(job.probes, progress=progress) if job.probes and run.labelled else {}
    history = [line for line in run.metrics if "epoch" in line]
    angles = _angles(run.encoder, run.config, where)
    return Result(job.cell, run.config, run.config.hash, found, run.seconds, about, None, history, angles)


def _angles(encoder: nn.Module, config: Config, where: dict[str, Any]) -> list[int] | None:
    if config.dimensions != 2:
        return None
    return angle_counts(held_out_features(encoder, config.replace(**where), "test")).tolist()


def _trained(job: Job, path: Path, progress: bool, where: dict[str, Any]) -> Run:
    if (path / "run.json").is_file():
        saved = load_config(path)
        now = job.config.replace(**where, out=saved.out, precision=saved.precision)
        return go_on(path, agreeing(saved, now, path), progress=progress)
    path.parent.mkdir(parents=True, exist_ok=True)
    return start(job.config.replace(**where, out=path), progress=progress)
