"""A grid of runs over any fields of a config: what it lacks is run, what it has is compared."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hypersphere.config import Config, worded
from hypersphere.data import Dataset, Given
from hypersphere.errors import UserError
from hypersphere.methods import Method
from hypersphere.methods import name_of as name_of_method
from hypersphere.probes import EVERY_PROBE, TRANSFER_PROBES
from hypersphere.runs.idle import idle_options
from hypersphere.runs.recipes import recipe_for
from hypersphere.runs.results import Result, name_of, read_results
from hypersphere.sweeps import FanOut
from hypersphere.sweeps.jobs import Job, check_failed, run_jobs
from hypersphere.util.intervals import Estimate, estimate
from hypersphere.util.written import edition, is_reference, reference_to

OUT = Path("runs/sweep")
DECIDE_DEFAULTS = ("method", "data", "labels", "size", "white")  # the options that a recipe depends on
_UNHASHED = {field.name for field in dataclasses.fields(Config) if not field.metadata.get("hashed", True)}


class Point(NamedTuple):
    """Of the grid: the values that are its own, and the config that they make."""

    values: dict[str, Any]
    config: Config
    files: str = ""  # which edition of a folder's images and labels it is

    @property
    def title(self) -> str:
        return ", ".join(f"{name} {worded(value)}" for name, value in self.values.items()) or self.config.title

    @property
    def cell(self) -> str:
        """What tells its results from others, beside the hash: the data, swept fields that are not hashed, and which
        edition of the user's images, arrays and code made them."""
        apart = [f"-{name}-{self.values[name]}" for name in sorted(self.values) if name in _UNHASHED]
        config = self.config
        own = [name for name in (config.method, config.encoder, config.regularizer or "") if is_reference(name)]
        apart += [f"-{hash}" for hash in dict.fromkeys((self.files, *map(edition, own))) if hash]
        return f"{self.config.title}-{self.config.data_name}" + "".join(apart).replace("/", "-")

    @property
    def name(self) -> str:
        return name_of(self.cell, self.config)


def distinct(values: Iterable[tuple[dict[str, Any], Config]]) -> list[Point]:
    """Of the grid, each once, however often its values were said. Those that differ by what nothing looks at are one
    run; a field that changes none of them is a mistake."""
    edition_of = cache(lambda data, labels: Dataset.resolve(Given(data, labels=labels)).edition())
    points = (Point(own, _plain(own, config), edition_of(config.data, config.labels)) for own, config in values)
    found = list({repr(point.values): point for point in points}.values())
    idle = set.intersection(*(idle_options(point.config) for point in found))
    for name in found[0].values:
        if name in idle and len({repr(point.values[name]) for point in found}) > 1:
            runs = ", ".join(dict.fromkeys(f"{point.config.title} with {point.config.data}" for point in found))
            raise UserError(f"`over` {name}: of no effect on {runs}; leave it out")
    return found


def _plain(own: Mapping[str, Any], config: Config) -> Config:
    """With the defaults of what is swept and nothing of this run looks at: one run, whatever was said."""
    return config.replace(**{name: getattr(Config(), name) for name in idle_options(config) & own.keys()})


def product(over: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    """All combinations; the seed changes last, so that whatever is finished at any moment can be compared."""
    if "out" in over:
        raise UserError("`out` cannot be swept: each run has a folder of its own below it")
    lists: dict[str, list[Any]] = {}
    for name, values in over.items():
        lists[name] = [] if isinstance(values, str) or not isinstance(values, Iterable) else list(values)
        if not lists[name]:
            raise UserError(f"`over` {name} must be a list of values, not {values!r}")
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
    """Runs of all combinations: `sweep("byol-mhe", "digits", over={"lr": [0.004, 0.008], "seed": [0, 1]}, epochs=20)`.

    `options` are the fields of `Config`. What has a result in `out` is not repeated.
    """
    points = points_of(_kept(method), over, {"data": data, **options})
    names = [point.name for point in points]  # as the user's code is now
    jobs = missing(points, results_in(Path(out)), tuple(probes))
    failed = run_jobs(jobs, Path(out) / "results", Path(out), FanOut(workers, ray, retries))
    check_failed(failed, len(set(names)))
    found = results_in(Path(out))
    return [found[name] for name in names]


def _kept(value: Any) -> Any:
    """A class or function of the user's by the name that a config keeps it by."""
    if isinstance(value, type) and issubclass(value, Method):
        return name_of_method(value)
    return (reference_to(value) or value) if callable(value) else value


def points_of(method: str, over: Mapping[str, Iterable[Any]], options: Mapping[str, Any]) -> list[Point]:
    """All combinations of the values in `over`, with the other `options` (data among them) as they are."""
    recipe = cache(recipe_for)  # a folder is surveyed once

    def config_of(values: Mapping[str, Any]) -> Config:
        chosen = {"method": method, **options, **values}
        defaults = recipe(**{name: chosen.pop(name) for name in DECIDE_DEFAULTS if name in chosen})
        return defaults.replace(**chosen)

    grid = ({name: _kept(value) for name, value in values.items()} for values in product(over))
    return distinct((values, config_of(values)) for values in grid)


def results_in(out: Path) -> dict[str, Result]:
    return {name_of(found.cell, found.config, found.hash): found for found in read_results(out / "results")}


def missing(points: Sequence[Point], found: Mapping[str, Result], probes: tuple[str, ...]) -> list[Job]:
    """Points without a result, or whose result lacks a probe. Points that are the same run are one."""
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
    """Of the table: the runs that differ by nothing but their seed."""

    values: dict[str, Any]
    runs: str  # how many of them have a result
    numbers: dict[str, Estimate]


def rows(points: Sequence[Point], found: Mapping[str, Result]) -> list[Row]:
    """In the order of the grid, each number with its mean and 95 % interval over the seeds."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        key = repr({name: value for name, value in point.values.items() if name != "seed"})
        groups.setdefault(key, []).append(point)
    return [_row(group, [found[point.name] for point in group if point.name in found]) for group in groups.values()]


def _row(group: Sequence[Point], results: Sequence[Result]) -> Row:
    values = {name: value for name, value in group[0].values.items() if name != "seed"}
    lost = sum(result.diverged is not None for result in results)
    runs = f"{len(results)} of {len(group)}" + (f", {lost} diverged" if lost else "")
    by_name: dict[str, list[float]] = {}
    for result in results:
        for name, number in _numbers(result).items():
            by_name.setdefault(name, []).append(number)
    return Row(values, runs, {name: found for name, some in by_name.items() if (found := estimate(some)) is not None})


def _numbers(result: Result) -> dict[str, float]:
    """Of the last epoch: accuracies and uniformity; without labels, what was measured during training."""
    if result.evaluation:
        found = {f"{probe}, %": values["top1"] for probe, values in result.evaluation.items() if "top1" in values}
        spread = result.evaluation["sphere"].get("uniformity")
        return found if spread is None else found | {"uniformity": spread}
    last = result.history[-1] if result.history else {}
    watched = {"uniformity_of_features": "uniformity", "effective_rank": "effective rank"}
    return {shown: last[name] for name, shown in watched.items() if name in last}
