"""Commands that list what there is: data sets, methods."""

import dataclasses
import textwrap
from pathlib import Path

from hypersphere.cli.options import parse, take_word
from hypersphere.config import Config, recipe, worded


@dataclasses.dataclass(frozen=True)
class DataOptions:
    # Folder of the data files (None: $HYPERSPHERE_DATA, or ~/.cache/hypersphere/data).
    root: Path | None = None


def data(words: list[str]) -> None:
    name = take_word(words, DataOptions, "NAME")
    about = "List the data sets; with NAME, fetch that one and check it."
    options = parse(DataOptions, words, "hypersphere data [NAME]", about, DataOptions())
    from hypersphere.data import FILE_SOURCES, SOURCES, default_root, list_data, load_data

    if name is None:
        summaries = {n: s.summary for n, s in SOURCES.items()} | {n: s.summary for n, s in FILE_SOURCES.items()}
        for key, summary in summaries.items():
            print(f"{key:15} {summary}")
        return
    get = list_data if name in FILE_SOURCES else load_data
    rest, validation = map(len, get(name, holdout="validation", root=options.root))
    train, test = map(len, get(name, holdout="test", root=options.root))
    split = f"{rest:,} + {validation:,} for validation"
    where = options.root or default_root()
    print(f"{name} in {where}: {train:,} training images ({split}), {test:,} test images")


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
