"""hypersphere methods: list the methods, or tell all about one."""

import dataclasses
import textwrap

from hypersphere.cli.options import parse, take_word
from hypersphere.config import Config, recipe, worded


@dataclasses.dataclass(frozen=True)
class MethodsOptions:
    pass


def methods(words: list[str]) -> None:
    name = take_word(words, MethodsOptions, "METHOD")
    about = (
        "List the methods: paper, idea, and what their options are on CIFAR-10 where not as BYOL's. With METHOD, also\n"
        "what was published and what is different here. Any has variants METHOD-uni, METHOD-mhe and METHOD-uni-mhe."
    )
    parse(MethodsOptions, words, "hypersphere methods [METHOD]", about, MethodsOptions())
    chosen = recipe(name).method if name is not None else None
    from inspect import getdoc, getmodule

    from hypersphere.methods import METHODS, method_of

    for key, kind in METHODS.items() if chosen is None else [(chosen, method_of(chosen))]:
        paper = f": {(getmodule(kind).__doc__ or '').splitlines()[0]}" if key in METHODS else ""
        print(f"{name or key}{paper}")
        if chosen is not None and kind.__doc__:
            print(f"\n{getdoc(kind)}\n")
        print(_defaults(recipe(name or key)))


def _defaults(config: Config) -> str:
    """What most decides a run, and what a method changes."""
    shown = ["epochs", "batch", "optimizer", "lr", "weight_decay"]
    shown += [option for option in config.differences(Config()) if option not in (*shown, "method")]
    shown += ["energy_layers"] if config.energy and "energy_layers" not in shown else []
    said = [f"{option} {worded(getattr(config, option))}" for option in shown]
    return textwrap.fill(", ".join(said), 100, initial_indent="    ", subsequent_indent="    ")
