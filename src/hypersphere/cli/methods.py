"""hypersphere methods: list the methods, or describe one."""

import dataclasses
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from hypersphere.cli.options import parse

if TYPE_CHECKING:
    from hypersphere.config import Config


@dataclasses.dataclass(frozen=True)
class MethodsOptions:
    """List the methods: paper, idea, and the defaults on CIFAR-10 that differ from BYOL's.

    Every method has the variants METHOD-uni, METHOD-mhe and METHOD-uni-mhe."""

    method: Annotated[str | None, Positional, arg(metavar="[METHOD]")] = None
    """Describe this method: what was published, and what differs here."""


def run(words: Sequence[str]) -> None:
    name = parse("methods", MethodsOptions, words).method
    from inspect import getdoc, getmodule

    from hypersphere.config import recipe
    from hypersphere.methods import METHODS, method_of

    chosen = recipe(name).method if name is not None else None
    for key, kind in METHODS.items() if chosen is None else [(chosen, method_of(chosen))]:
        paper = f": {(getmodule(kind).__doc__ or '').splitlines()[0]}" if key in METHODS else ""
        print(f"{name or key}{paper}")
        if chosen is not None and kind.__doc__:
            print(f"\n{getdoc(kind)}\n")
        print(_defaults(recipe(name or key)))


def _defaults(config: "Config") -> str:
    """The options that decide a run most, and those that the method changes."""
    from hypersphere.config import Config, worded

    shown = ["epochs", "batch", "optimizer", "lr", "weight_decay"]
    shown += [option for option in config.differences(Config()) if option not in (*shown, "method")]
    shown += ["energy_layers"] if config.energy and "energy_layers" not in shown else []
    values = [f"{option} {worded(getattr(config, option))}" for option in shown]
    return textwrap.fill(", ".join(values), 100, initial_indent="    ", subsequent_indent="    ")
