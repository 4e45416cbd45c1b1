"""hypersphere methods: list the methods, or describe one."""

import dataclasses
import textwrap
from collections.abc import Sequence
from inspect import cleandoc, getmodule
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from hypersphere.cli.next_step import print_next
from hypersphere.cli.parsing import parse
from hypersphere.errors import UserError

if TYPE_CHECKING:
    from hypersphere.config import Config
    from hypersphere.methods import Method


@dataclasses.dataclass(frozen=True)
class MethodsOptions:
    """List the methods: paper, idea, and the defaults on CIFAR-10 that differ from BYOL's.

    Every method has the variants METHOD-uni, METHOD-mhe and METHOD-uni-mhe."""

    method: Annotated[str | None, Positional, arg(metavar="[METHOD]")] = None
    """Describe this method: what was published, and what differs here."""
    for_: Annotated[str | None, arg(name="for", metavar="DATA")] = None
    """Choose a method for these images, and compare methods in recorded runs on similar ones."""
    size: int | None = None
    """With --for: side of the encoder's input in pixels. None: by the size of the images."""
    epochs: int | None = None
    """With --for: length of the training. None: as `pretrain` chooses it."""


def run(words: Sequence[str]) -> None:
    options = parse("methods", MethodsOptions, words)
    name = options.method
    for option in ("size", "epochs"):
        if options.for_ is None and getattr(options, option) is not None:
            raise UserError(f"`{option}` applies to --for: hypersphere methods --for DATA --{option} 64")
    if options.for_ is not None:
        if name is not None:
            raise UserError(f"give either a method, {name!r}, or --for {options.for_}")
        _print_choice(options.for_, options.size, options.epochs)
        return
    from hypersphere.config import recipe
    from hypersphere.methods import METHODS, method_class

    if name is not None:
        config = recipe(name)
        kind = method_class(config.method)
        print(f"{name}{_paper(kind) if config.method in METHODS else ''}")
        if kind.__doc__:
            print(f"\n{_description(kind.__doc__)}\n")
        print(_defaults(config))
        print_next("pretrain", name, "--data", "FOLDER_OF_IMAGES")
        return
    for key, kind in METHODS.items():
        print(f"{key}{_paper(kind)}\n{_defaults(recipe(key))}")
    print_next("methods", "NAME")


def _print_choice(data: str, size: int | None, epochs: int | None) -> None:
    from rich.table import Table

    from hypersphere.config import format_value
    from hypersphere.data import Dataset, DataSpec
    from hypersphere.runs.recipes import recommended_for
    from hypersphere.util.console import table_console

    dataset = Dataset.resolve(DataSpec(data, size=size))
    choice = recommended_for(dataset, size, epochs)
    if summary := dataset.summary():
        print(summary)
    best = choice.best
    title = f"{best.data}: {best.images:,} images at {best.side} pixels, {best.encoder}, {best.epochs} epochs"
    table = Table("method", "k-NN %", "linear %", "min", "seeds", "options", title=title)
    for run in (best, *choice.others):
        numbers = (f"{run.knn:.1f}", *("–" if one is None else f"{one:.1f}" for one in (run.linear, run.minutes)))
        given = ", ".join(f"{name} {format_value(value)}" for name, value in run.options.items())
        table.add_row(run.method, *numbers, str(run.seeds), given)
    table_console().print(table)
    print(f"The best recorded run of each method, on {best.holdout} images, on one {best.device}, in the setting most")
    print("like yours: number of images, size and epochs. Methods were not tried equally often. `pretrain` takes the")
    print("first: the best, or the same method without -uni or -mhe if that is as good within a standard error.")
    lengths = {"--size": size, "--epochs": epochs}
    print_next("pretrain", "--data", data, *(str(x) for item in lengths.items() if item[1] for x in item))


def _paper(kind: "type[Method]") -> str:
    """Return the first line of the method's file."""
    return f": {(getmodule(kind).__doc__ or '').splitlines()[0]}"


def _description(docstring: str) -> str:
    """Return a docstring without its sections for programmers."""
    return cleandoc(docstring).partition("\n\nArgs:")[0]


def _defaults(config: "Config") -> str:
    """Return the options that decide a run most, and those that differ from BYOL's."""
    from hypersphere.config import format_value, recipe

    shown = ["epochs", "batch", "optimizer", "lr", "weight_decay"]
    shown += [option for option in config.differences(recipe("byol")) if option not in (*shown, "method")]
    shown += ["energy_layers"] if config.energy and "energy_layers" not in shown else []
    values = [f"{option} {format_value(getattr(config, option))}" for option in shown]
    return textwrap.fill(", ".join(values), 100, initial_indent="    ", subsequent_indent="    ")
