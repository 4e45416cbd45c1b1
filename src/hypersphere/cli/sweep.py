"""hypersphere sweep: runs with all combinations of some options."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin

import tyro

from hypersphere.cli.options import check_known, parse, take_word, value_optional
from hypersphere.cli.pretrain import recipe_of, told_of_data, with_options_of
from hypersphere.config import Config, format_value, option_names, recipe, unknown_option
from hypersphere.errors import UserError
from hypersphere.methods import METHODS
from hypersphere.probes import TRANSFER_PROBES, Probe
from hypersphere.sweeps import FanOut

if TYPE_CHECKING:
    from hypersphere.runs.results import Result
    from hypersphere.sweeps.grid import Point


@dataclasses.dataclass(frozen=True)
class SweepOptions(FanOut, Config):
    over: tuple[str, ...] = ()
    """Options to vary with their values, such as lr=0.1,0.2 seed=0,1 (or method=byol,simclr): all combinations are run.
    Several names in one value are joined by +: energy_layers=projector,projector+predictor. workers=4 sets the
    processes that decode the images of each run."""
    probes: tuple[Probe, ...] = TRANSFER_PROBES
    """What to measure at the end of each run."""
    out: Path = Path("runs/sweep")
    """Folder of the runs, of their logs, and of the results, one file each."""
    dry_run: bool = False
    """List the runs without starting them."""
    method: tyro.conf.Suppress[tyro.conf.Fixed[Any]] = "byol"

    @classmethod
    def of(cls, config: Config) -> "SweepOptions":
        return cls(**{**vars(config), "out": SweepOptions.out, "workers": None})

    def config(self, workers: int | None) -> Config:
        given = {name: getattr(self, name) for name in option_names(self.method)}
        return Config(**{**given, "out": None, "workers": workers})


def sweep(words: list[str]) -> None:
    words = value_optional(words, "--ray")
    method = take_word(words, with_options_of(SweepOptions, *METHODS), "METHOD", strict=False)
    known = functools.cache(recipe_of)  # a folder is looked into, and told of, once
    plain = known(method or "byol", **told_of_data(words))
    about = (
        "Run a method with all combinations of some options, and compare the results. Said again, it repeats nothing\n"
        f"that is finished. The other options are those of pretrain, by default of {plain.title} on {plain.data}."
    )
    prog = "hypersphere sweep METHOD --over FIELD=VALUE,…"
    swept = [word.removeprefix("method=").split(",") for word in words if word.startswith("method=")]
    methods = _bases(swept[0] if swept else [plain.method])
    kind = with_options_of(SweepOptions, *methods)
    check_known(words, kind, methods)
    options = parse(kind, words, prog, about, kind.of(plain))
    if method is None:
        raise UserError(f"say which method to train: hypersphere sweep METHOD … ({', '.join(METHODS)})")
    options.check()
    over = _fields(options.over, words, methods)
    from hypersphere.sweeps.grid import missing, results_in
    from hypersphere.sweeps.jobs import check_failed, run_jobs
    from hypersphere.util.progress import counted

    points, found = _points(method, words, over, known), results_in(options.out)
    jobs = missing(points, found, options.probes)
    begun = sum((options.out / job.name / "run.json").is_file() for job in jobs)
    runs = len({point.name for point in points})
    done, left = runs - len(jobs), len(jobs) - begun
    print(f"{counted(runs, 'run')}: {done} finished, {begun} begun, {left} to start", flush=True)
    if options.dry_run:
        for job in jobs:
            print(job)
        return
    failed = run_jobs(jobs, options.out / "results", options.out, options)
    _print_sweep(points, results_in(options.out))
    print(f"results in {options.out / 'results'}")
    check_failed(failed, len(jobs))


def _bases(methods: Sequence[str]) -> list[str]:
    """The methods of a sweep, without their variants."""
    return list(dict.fromkeys(recipe(name).method for name in methods))


def _fields(over: Sequence[str], words: Sequence[str], methods: Sequence[str] = ("byol",)) -> dict[str, list[str]]:
    """lr=0.1,0.2 → {"lr": ["0.1", "0.2"]}"""
    names, found = set.union(*map(option_names, methods)), {}
    if not over:
        raise UserError("say what to vary: `over` FIELD=VALUE,VALUE …, such as lr=0.1,0.2 seed=0,1")
    for word in over:
        field, _, values = word.partition("=")
        name, option = field.replace("-", "_"), f"--{field.replace('_', '-')}"
        if not all(values.split(",")):
            raise UserError(f"`over` wants FIELD=VALUE,VALUE …, not {word!r}")
        if name not in names:
            raise unknown_option(name, methods)
        said = {word.partition("=")[0].replace("_", "-") for word in words} if name != "workers" else set()
        if name in found:
            raise UserError(f"`over` {name} is said twice: once with all of its values is enough")
        if {option, f"--no-{option[2:]}"} & said:
            raise UserError(f"{option} is said beside `over` {name}=…, which is enough")
        found[name] = values.split(",")
    return found


def _points(
    method: str, words: list[str], over: Mapping[str, list[str]], known: Callable[..., Config] = recipe_of
) -> "list[Point]":
    """Each as pretrain would understand it. `known`: the recipe of a method on data."""
    from hypersphere.runs.recipes import located
    from hypersphere.sweeps.grid import distinct, product

    kind = with_options_of(SweepOptions, *_bases(over.get("method", [method])))
    points = []
    for values in product(over):
        of_data = {name: values.get(name, said) for name, said in told_of_data(words).items()}
        default = known(values.get("method", method), **of_data)
        said = [part for name, value in values.items() for part in _said(name, value, kind)]
        options = parse(kind, [*words, *said], "hypersphere sweep METHOD", "", kind.of(default))
        config = options.config(options.workers if "workers" in values else None)
        points.append(({name: _value(options, name, values[name]) for name in values}, located(config)))
    return distinct(points)


def _said(name: str, value: str, kind: type[Config]) -> list[str]:
    """A field's value, as words of the command line."""
    kinds = {field.name: field.type for field in dataclasses.fields(kind)}
    option = name.replace("_", "-")
    if name == "method":
        return []
    if kinds[name] is bool:
        if value.lower() not in ("true", "false"):
            raise UserError(f"`{name}` must be true or false, not {value}")
        return [f"--{option}" if value.lower() == "true" else f"--no-{option}"]
    return [f"--{option}", *value.split("+")] if get_origin(kinds[name]) is tuple else [f"--{option}={value}"]


def _value(config: Config, name: str, said: str) -> Any:
    return said if name in ("method", "data") else getattr(config, name)


def _print_sweep(points: "Sequence[Point]", found: "Mapping[str, Result]") -> None:
    from rich.table import Table

    from hypersphere.sweeps.grid import rows
    from hypersphere.util.progress import table_console

    made = rows(points, found)
    names = list(dict.fromkeys(name for row in made for name in row.numbers))
    seeds = any("seed" in point.values for point in points)
    table = Table(*made[0].values, "runs", title="last epoch" + ", ± the 95 % interval over seeds" * seeds)
    for name in names:
        table.add_column(name, justify="right")
    for row in made:
        numbers = (str(row.numbers[name]).partition(" (n")[0] if name in row.numbers else "–" for name in names)
        table.add_row(*map(format_value, row.values.values()), row.runs, *numbers)
    table_console().print(table)
