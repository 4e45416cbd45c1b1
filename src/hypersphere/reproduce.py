"""Runs the paper's cells that lack a result. Stopped at any moment, the same command goes on where it was."""

import os
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from hypersphere.config import Config
from hypersphere.diagnostics import angle_counts
from hypersphere.errors import Diverged, UserError, similar
from hypersphere.evaluate import PROBES
from hypersphere.files import write_atomically
from hypersphere.machine import pick_device, provenance
from hypersphere.paper.cells import AS_WRITTEN, Cell, Protocol, Table
from hypersphere.paper.figures import FIGURES, Figure
from hypersphere.paper.state import Evidence
from hypersphere.paper.tables import TABLES
from hypersphere.paper.tuning import TRIALS
from hypersphere.progress import tell
from hypersphere.report.markdown import results_page
from hypersphere.report.plots import draw_figures
from hypersphere.report.terminal import duration
from hypersphere.results import Result, read_results
from hypersphere.run import Run, evaluate_on, go_on, held_out_features, initial_encoder, load_config, start


class Job(NamedTuple):
    """One run that is missing."""

    cell: Cell
    config: Config

    def __str__(self) -> str:
        return f"{self.cell.name}, {self.config.epochs} epochs, seed {self.config.seed}"


def named(name: str) -> Table | Figure:
    there: dict[str, Table | Figure] = {**TABLES, TRIALS.name: TRIALS, **FIGURES}
    if name not in there:
        raise UserError(f"unknown table or figure {name!r}{similar(name, there)} (there are {', '.join(there)})")
    return there[name]


def missing(
    table: Table | Figure, evidence: Evidence, seeds: int, cells: Sequence[str] = (), protocol: Protocol = AS_WRITTEN
) -> Iterator[Job]:
    """Seed by seed, so that whatever was finished when it is stopped can be compared."""
    names = [cell.name for cell in table.cells]
    for name in cells:
        if name not in names:
            raise UserError(
                f"{table.name} has no cell {name!r}{similar(name, names)} (its cells are {', '.join(names)})"
            )
    for seed in range(seeds):
        for cell in table.cells:
            chosen = not cells or cell.name in cells
            if chosen and cell.obstacle is None and seed not in evidence.of(cell, protocol):
                yield Job(cell, protocol.config(cell, seed))


def run_jobs(
    jobs: Sequence[Job], results: Path, runs: Path, page: Path, *, progress: bool = True, **where: Any
) -> None:
    """`where`: device, root and the like, which change no result."""
    began, spent = time.monotonic(), 0.0
    for done, job in enumerate(jobs):
        left = f", about {duration(spent / done * (len(jobs) - done))} left" if done else ""
        tell(f"{job} ({done + 1} of {len(jobs)}{left})")
        result = run_job(job, runs, progress=progress, **where)
        result.write(results)
        write_page(results, page)
        spent = time.monotonic() - began


def run_job(job: Job, runs: Path, *, progress: bool = True, **where: Any) -> Result:
    """Pretrain, or go on with what was begun, and evaluate on what the cell holds out: the test set, for most."""
    probes = job.cell.probes or PROBES
    path = runs / f"{job.cell.name}-{job.config.epochs}-seed{job.config.seed}-{job.config.hash}"
    about = provenance(pick_device(where.get("device", job.config.device)))
    if not job.cell.trained:
        encoder, config = initial_encoder(job.config.replace(**where)), job.config
        found = evaluate_on(encoder, config.replace(**where), probes, config.holdout, progress=progress)
        return Result(job.cell.name, config, config.hash, found, 0.0, about, angles=_angles(encoder, config, where))
    try:
        run = _trained(job, path, progress, where)
    except Diverged as error:
        return Result(job.cell.name, job.config, job.config.hash, {}, 0.0, about, str(error).split(":")[0])
    found, config = run.evaluate(probes, progress=progress), run.config
    history = [line for line in run.metrics if "epoch" in line]
    angles = _angles(run.encoder, config, where)
    return Result(job.cell.name, config, config.hash, found, run.seconds, about, None, history, angles)


def _angles(encoder: nn.Module, config: Config, where: dict[str, Any]) -> list[int] | None:
    if config.dimensions != 2:
        return None
    return angle_counts(held_out_features(encoder, config.replace(**where), "test")).tolist()


def _trained(job: Job, path: Path, progress: bool, where: dict[str, Any]) -> Run:
    if (path / "run.json").is_file():
        return go_on(path, load_config(path).replace(**where), progress=progress)
    path.parent.mkdir(parents=True, exist_ok=True)
    return start(job.config.replace(**where, out=path), progress=progress)


def write_page(results: Path, page: Path) -> None:
    """All tables, claims and, where matplotlib is installed, figures: from the results alone."""
    evidence = Evidence(read_results(results))
    figures: dict[str, str] = {}
    if find_spec("matplotlib") is not None:
        drawn = draw_figures(evidence, results / "figures")
        figures = {name: os.path.relpath(path, page.parent) for name, path in drawn.items()}
    write_atomically(page, results_page(evidence, figures=figures).encode())
