"""hypersphere methods: list the methods, or describe one."""

import dataclasses
import textwrap
from collections.abc import Sequence
from inspect import cleandoc, getmodule
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from hypersphere.cli.next_step import print_next
from hypersphere.cli.options import parse

if TYPE_CHECKING:
    from hypersphere.config import Config
    from hypersphere.methods import Method


@dataclasses.dataclass(frozen=True)
class MethodsOptions:
    """List the methods: paper, idea, and the defaults on CIFAR-10 that differ from BYOL's.

    Every method has the variants METHOD-uni, METHOD-mhe and METHOD-uni-mhe."""

    method: Annotated[str | None, Positional, arg(metavar="[METHOD]")] = None
    """Describe this method: what was published, and what differs here."""


def run(words: Sequence[str]) -> None:
    name = parse("methods", MethodsOptions, words).method
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
