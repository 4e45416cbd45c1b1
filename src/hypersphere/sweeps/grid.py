"""Sweeps: runs with all combinations of some options. Finished runs are not repeated, and all are compared."""

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hypersphere.config import Config, format_value, option_names, unknown_option
from hypersphere.data import Dataset, DataSpec
from hypersphere.errors import UserError
from hypersphere.methods import Method, name_of
from hypersphere.probes import EVERY_PROBE, TRANSFER_PROBES
from hypersphere.runs.recipes import inactive_options, recipe_for
from hypersphere.runs.results import Result, read_results, run_name
from hypersphere.sweeps import FanOut
from hypersphere.sweeps.jobs import Job, check_failed, run_jobs
from hypersphere.util.references import edition, is_reference, reference_to
from hypersphere.util.statistics import Estimate, estimate

OUT = Path("runs/sweep")
# the options that a recipe depends on
DECIDE_DEFAULTS = ("method", "data", "labels", "size", "white", "encoder", "init")


class Point(NamedTuple):
    """A point of the grid: the values of the swept options, and the config of the run."""

    values: dict[str, Any]
    config: Config
    files: str = ""  # the edition of a folder's images and labels

    @property
    def title(self) -> str:
        return ", ".join(f"{name} {format_value(value)}" for name, value in self.values.items()) or self.config.title

    @property
    def cell(self) -> str:
        """Name of its results: method, data, swept options without a hash, editions of the user's files and code."""
        config = self.config
        unhashed = {field.name for field in dataclasses.fields(config) if not field.metadata.get("hashed", True)}
        apart = [f"-{name}-{self.values[name]}" for name in sorted(self.values.keys() & unhashed)]
        own = [name for name in (config.method, config.encoder, config.regularizer or "") if is_reference(name)]
        apart += [f"-{hash}" for hash in dict.fromkeys((self.files, *map(edition, own))) if hash]
        return f"{self.config.title}-{self.config.data_name}" + "".join(apart).replace("/", "-")

    @property
    def name(self) -> str:
        return run_name(self.cell, self.config)


def distinct(values: Iterable[tuple[dict[str, Any], Config]]) -> list[Point]:
    """Return each point of a grid once. Points that differ by options without effect have the same config.

    Raises:
        UserError: If a swept option has no effect on any run.
    """
    edition_of = cache(lambda data, labels: Dataset.resolve(DataSpec(data, labels=labels)).edition())
    points = (Point(own, _plain(own, config), edition_of(config.data, config.labels)) for own, config in values)
    found = list({repr(point.values): point for point in points}.values())
    idle = set.intersection(*(inactive_options(point.config) for point in found))
    for name in found[0].values:
        if name in idle and len({repr(point.values[name]) for point in found}) > 1:
            runs = ", ".join(dict.fromkeys(f"{point.config.title} on {point.config.data}" for point in found))
            raise UserError(f"`over` {name} has no effect on {runs}: leave it out")
    return found


def _plain(own: Mapping[str, Any], config: Config) -> Config:
    """Reset swept options that have no effect on this run to their defaults, so that it is one run."""
    idle = inactive_options(config) & own.keys()
    return config.replace(**{field.name: field.default for field in dataclasses.fields(config) if field.name in idle})


def product(over: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    """Yield all combinations. The seed changes last, so that finished runs can be compared at any time."""
    if "out" in over:
        raise UserError("`out` cannot be swept: each run has its own folder in it")
    lists: dict[str, list[Any]] = {}
    for name, values in over.items():
        lists[name] = [] if isinstance(values, str) or not isinstance(values, Iterable) else list(values)
        if not lists[name]:
            raise UserError(f"`over` {name} must be a list of values, got {values!r}")
    names = sorted(over, key=lambda name: name != "seed")
    for values in itertools.product(*(lists[name] for name in names)):
        point = dict(zip(names, values, strict=True))
        yield {name: point[name] for name in over}


def sweep(
    method: str | type[Method],
    data: Any = "cifar10",
    *,
    over: Mapping[str, Iterable[Any]],
    probes: Sequence[str] = TRANSFER_PROBES,
    out: str | Path = OUT,
    workers: int | None = None,
    ray: str | None = None,
    retries: int = FanOut.retries,
    **options: Any,
) -> list[Result]:
    """Run a method with all combinations of some options. Runs that have a result in `out` are not repeated.

    Args:
        method: Name or class of the method.
        data: Dataset, as in `hs.pretrain`.
        over: Options to vary, each with a list of values; `method` and `data` may be among them. Options that a method
            does not have create no further runs of it.
        probes: What to measure at the end of each run.
        out: Folder of the runs, and of their results.
        workers: Runs at a time, each in its own process; 0 runs one after the other in this process. None means one for
            each GPU, or one.
        ray: Address of a Ray cluster to run on; "" for the local one.
        retries: How often a run is resumed after its process died.
        options: Options of all runs.

    Returns:
        The result of each combination, in the order of the grid.

    Raises:
        UserError: If an option is wrong, or no method of the sweep has it.
        RunsFailed: If some runs failed, after all others are done.

    Example:
        >>> hs.sweep("byol", "digits", over={"lr": [0.004, 0.008], "seed": [0, 1]}, epochs=20)  # doctest: +SKIP
    """
    if not isinstance(data, str | os.PathLike) and reference_to(data) is None:
        readable = "a name, a folder, a file or a function at the top of a module"
        raise UserError(f"`data` of a sweep must be {readable}, which its processes can read")
    points = points_of(_kept(method), over, {"data": _kept(data), **options})
    runs = [point.name for point in points]  # as the user's code is now
    jobs = missing_jobs(points, results_in(Path(out)), tuple(probes))
    failed = run_jobs(jobs, Path(out) / "results", Path(out), FanOut(workers, ray, retries))
    check_failed(failed, len(set(runs)))
    found = results_in(Path(out))
    return [found[run] for run in runs]


def _kept(value: Any) -> Any:
    """Return the name under which a config keeps a class or function of the user's."""
    if isinstance(value, type) and issubclass(value, Method):
        return name_of(value)
    return (reference_to(value) or value) if callable(value) else value


def points_of(method: str, over: Mapping[str, Iterable[Any]], options: Mapping[str, Any]) -> list[Point]:
    """Return all combinations of the values in `over`, with the other `options` (data among them) as they are.

    Raises:
        UserError: If no method of the sweep has an option.
    """
    recipe = cache(recipe_for)  # a folder is surveyed once
    grid = [{name: _kept(value) for name, value in values.items()} for values in product(over)]
    methods = list(dict.fromkeys(values.get("method", method) for values in grid))
    known: set[str] = set().union(*map(option_names, methods))
    for option in {*options, *over} - known:
        raise unknown_option(option, methods)

    def config_of(values: Mapping[str, Any]) -> Config:
        chosen = {"method": method, **options, **values}
        of_method = option_names(chosen["method"])  # other methods of the sweep may have further options
        chosen = {name: value for name, value in chosen.items() if name in of_method}
        defaults = recipe(**{name: chosen.pop(name) for name in DECIDE_DEFAULTS if name in chosen})
        return defaults.replace(**chosen)

    return distinct((values, config_of(values)) for values in grid)


def results_in(out: Path) -> dict[str, Result]:
    """Return the results of a sweep's folder by the names of their runs."""
    found: dict[str, Result] = {}
    for result in read_results(out / "results"):
        if result.config.hash == result.hash:  # of an earlier version, it may count options that its method lacks
            found[run_name(result.cell, result.config.without_unused())] = result
        found[run_name(result.cell, result.config, result.hash)] = result
    return found


def missing_jobs(points: Sequence[Point], found: Mapping[str, Result], probes: tuple[str, ...]) -> list[Job]:
    """Return the runs that have no result, or whose result lacks a probe, each once."""
    if not probes or not set(probes) <= set(EVERY_PROBE):
        raise UserError(f"`probes` must be one or more of {', '.join(EVERY_PROBE)}")
    jobs: dict[str, Job] = {}
    for point in points:
        result = found.get(point.name)
        known = () if result is None else _probes(result)
        finished = result is not None and (set(probes) <= set(known) or not result.evaluation)
        if not finished:
            job = Job(point.cell, point.title, point.config, tuple(dict.fromkeys((*known, *probes))))
            jobs.setdefault(point.name, job)
    return list(jobs.values())


def _probes(result: Result) -> tuple[str, ...]:
    measured = ("few-shot" if name.endswith("-shot") else name for name in result.evaluation)
    return tuple(probe for probe in dict.fromkeys(measured) if probe in EVERY_PROBE)


class Row(NamedTuple):
    """A row of the table: runs that differ only by their seed."""

    values: dict[str, Any]
    runs: str  # how many of them have a result
    numbers: dict[str, Estimate]


def rows(points: Sequence[Point], found: Mapping[str, Result]) -> list[Row]:
    """Return the rows of the table in the order of the grid: means and 95 % intervals over seeds."""
    return [_row(group, [found[point.name] for point in group if point.name in found]) for group in grouped(points)]


def grouped(points: Sequence[Point]) -> list[list[Point]]:
    """Return the points in groups that differ only by the seed, in the order of the grid."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        key = repr({name: value for name, value in point.values.items() if name != "seed"})
        groups.setdefault(key, []).append(point)
    return [*groups.values()]


def _row(group: Sequence[Point], results: Sequence[Result]) -> Row:
    values = {name: value for name, value in group[0].values.items() if name != "seed"}
    lost = sum(result.diverged is not None for result in results)
    runs = f"{len(results)} of {len(group)}" + (f", {lost} diverged" if lost else "")
    by_name: dict[str, list[float]] = {}
    for result in results:
        for name, number in numbers_of(result).items():
            by_name.setdefault(name, []).append(number)
    return Row(values, runs, {name: found for name, some in by_name.items() if (found := estimate(some)) is not None})


def numbers_of(result: Result) -> dict[str, float]:
    """Return accuracies and uniformity of the last epoch; without labels, what was measured during training."""
    if result.evaluation:
        found = {f"{probe}, %": values["top1"] for probe, values in result.evaluation.items() if "top1" in values}
        spread = result.evaluation["sphere"].get("uniformity")
        return found if spread is None else found | {"uniformity": spread}
    last = result.history[-1] if result.history else {}
    watched = {"uniformity_of_features": "uniformity", "effective_rank": "effective rank"}
    return {shown: last[name] for name, shown in watched.items() if name in last}
