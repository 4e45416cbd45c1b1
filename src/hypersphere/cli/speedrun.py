"""hypersphere speedrun: time how long training to a given accuracy takes, and list the records."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from hypersphere.cli.help import describe_options, print_help, wants_help
from hypersphere.cli.pretrain import FIRST, GROUPS, default_config, parse_run_options
from hypersphere.errors import UserError

if TYPE_CHECKING:
    from hypersphere.bench.speedrun import Attempts

ABOUT = """\
Train encoders on CIFAR-10 without labels as fast as possible, each in a fresh process, and time it from the start of
the process to the result of the linear probe. benchmarks/speedrun/README.md has the rules.

Options of a run change the recipe. Without METHOD, it is that of hypersphere pretrain --data cifar10; the defaults
below are those of METHOD, or of byol."""


@dataclasses.dataclass(frozen=True)
class SpeedrunOptions:
    """Options of speedrun beside those of the runs."""

    method: Annotated[str | None, Positional, arg(metavar="[METHOD]")] = None
    """Method. None: the one that did best in recorded runs."""
    target: float = 90.74
    """Linear accuracy to reach, in %. The marks are 85 and 90.74."""
    attempts: int = 5
    """Runs, with seeds one apart. A record needs 5."""
    list: bool = False
    """Show all attempts in --records instead."""
    out: Path = Path("runs/speedrun")
    """Folder of the runs."""
    records: Path = Path("benchmarks/speedrun")
    """Folder of the times and logs, one file for each recipe."""


def run(words: Sequence[str]) -> None:
    given = parse_run_options("speedrun", SpeedrunOptions, words)
    if wants_help(words):
        shown = {**describe_options(default_config(given)), **describe_options(SpeedrunOptions)}
        own = [field.name for field in dataclasses.fields(SpeedrunOptions)]
        groups = {"run": [name for name in FIRST if name in shown and name not in own], **GROUPS}
        print_help("speedrun", ABOUT, shown, own, groups)
    method = given.pop("method", None)
    names = [field.name for field in dataclasses.fields(SpeedrunOptions)]
    options = SpeedrunOptions(**{name: given.pop(name) for name in names if name in given})
    if options.attempts < 1:
        raise UserError(f"`attempts` must be at least 1, got {options.attempts}")
    from hypersphere.bench.speedrun import read_attempts, speedrun
    from hypersphere.runs.pretraining import checked
    from hypersphere.runs.recipes import recipe_for

    if options.list:
        _print_attempts(read_attempts(options.records))
        return
    config = checked(recipe_for(method, **{"data": "cifar10", **given}))
    seeds = range(config.seed, config.seed + options.attempts)
    made = speedrun(config, options.target, seeds, options.out, options.records)
    print(f"{made.accuracy} % in {made.time.format('.1f', '.1f')} s")
    print(f"no record: {made.counts}" if made.counts else f"a record for {options.target:g} %")


def _print_attempts(found: "Sequence[Attempts]") -> None:
    from rich.table import Table

    from hypersphere.util.console import table_console

    table = Table("target", "seconds", "training", "linear %", "n", "method", "epochs", "device", "commit", "record")
    for one in found:
        training = sum(one.training) / len(one.training)
        numbers = (
            f"{one.target:g}",
            one.time.format(".1f", ".1f"),
            f"{training:.1f}",
            one.accuracy.format(".2f", ".2f"),
        )
        about = (one.about.get("device", ""), one.about.get("commit", ""))
        recipe = (str(len(one.seconds)), one.config.title, str(one.config.epochs))
        table.add_row(*numbers, *recipe, *about, one.counts or "yes")
    if found:
        table_console().print(table)
    else:
        print("no attempts yet: hypersphere speedrun --root FOLDER_OF_CIFAR10 makes some")
