"""Random command lines from the command line's own schema: options with values that fit, nearly fit, or do not."""

import importlib
import inspect
import random
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from hypersphere.cli.commands import COMMANDS
from hypersphere.cli.help import is_argument
from hypersphere.cli.parsing import is_list
from hypersphere.cli.pretrain import run_option_types
from hypersphere.methods import METHODS
from tests.networks import SMALL_ENCODER

ODD = (
    "",
    " ",
    "-",
    "--",
    "-1",
    "0",
    "1e309",
    "nan",
    "inf",
    "-inf",
    "9" * 30,
    "0x10",
    "1_0",
    "½",
    "a\nb",
    "é",
    "\udcff",
)
ODD += ("*", "[", "%s", "{}", "../..", "/", "/dev/null", "http://x", "a:b", "os:getcwd", "x" * 5000, "null", "None")
SMALL = ["--encoder", SMALL_ENCODER, "--epochs", "1", "--batch", "256", "--hidden", "8", "--projection", "4"]
SMALL += ["--knn-every", "0", "--device", "cpu"]
EXPENSIVE = {
    "workers",
    "times",
    "iterations",
    "energy_projection",
    "queue",
    "prototypes",
    "clusters",
    "words",
    "timeout",
}
LEFT_OUT = {
    "out",
    "root",
    "data",
    "download",
    "peer",
    "budget",
    "ray",
    "compile",
    "epochs",
}  # would write elsewhere, download, or take long


class CommandLine(NamedTuple):
    words: list[str]
    changed: list[str]  # options that were drawn
    command: str


def draw_command_line(draw: random.Random, paths: dict[str, str]) -> CommandLine:
    """A command line. `paths` has a run, an export, vectors, images and a folder to write to."""
    without = ("bench", "demo", "reproduce", "speedrun")  # which download, or take long
    command = draw.choice(["pretrain"] * 6 + [name for name in COMMANDS if name not in without])
    hints = _hints(command)
    words = [command, *_arguments(command, draw, paths)]
    if command in ("pretrain", "sweep"):
        words += ["--data", "digits", *SMALL, "--out", paths["out"]]
    options = [name for name, hint in hints.items() if not is_argument(hint) and name not in LEFT_OUT]
    changed = draw.sample(options, min(len(options), draw.choice((1, 1, 2))))
    for name in changed:
        words += _option(name, hints[name], draw)
    if draw.random() < 0.1:  # a word too many, or one too few
        place = draw.randrange(1, len(words) + 1)
        words = [*words[:place], draw.choice(ODD), *words[place:]] if draw.random() < 0.5 else words[:-1]
    return CommandLine(words, changed, command)


def _hints(command: str) -> dict[str, Any]:
    module = importlib.import_module(f"hypersphere.cli.{command}")
    own = [kind for _, kind in inspect.getmembers(module, inspect.isclass) if kind.__module__ == module.__name__]
    found = run_option_types(None) if command in ("pretrain", "sweep") else {}
    for kind in own:
        if hasattr(kind, "__dataclass_fields__"):
            found |= get_type_hints(kind, include_extras=True)
    return found


def _arguments(command: str, draw: random.Random, paths: dict[str, str]) -> list[str]:
    given = {
        "pretrain": [draw.choice([*METHODS])],
        "sweep": [draw.choice([*METHODS]), "--over", f"seed={draw.choice(('0', '0,1', '', 'x', '0..1'))}"],
        "evaluate": [paths["run"]],
        "diagnose": [draw.choice((paths["run"], paths["vectors"], paths["export"]))],
        "report": [paths["run"]],
        "embed": [paths["run"], paths["images"], "-o", paths["file"]],
        "neighbours": [paths["vectors"], paths["image"]],
        "export": [paths["run"], "--out", paths["out"]],
        "methods": [draw.choice([*METHODS, "", "x"])],
    }.get(command, [])
    if given and draw.random() < 0.1:
        given[draw.randrange(len(given))] = draw.choice(ODD)
    return given


def _option(name: str, hint: Any, draw: random.Random) -> list[str]:
    option = f"--{name.replace('_', '-')}"
    if hint is bool:
        return [draw.choice((option, f"--no-{option[2:]}", f"{option}=true"))]
    count = draw.choice((0, 1, 2, 3)) if is_list(hint) else 1
    values = [_value(name, hint, draw) for _ in range(count)]
    if draw.random() < 0.3 and len(values) == 1:
        return [f"{option}={values[0]}"]
    return [option, *values]


def _value(name: str, hint: Any, draw: random.Random) -> str:
    if draw.random() < 0.4:
        return draw.choice(ODD)
    if get_origin(hint) is Literal:
        return str(draw.choice(get_args(hint)))
    inside = [part for part in get_args(hint) if part is not type(None)]
    if inside:
        return _value(name, inside[0], draw)
    if hint is int:
        return str(draw.choice((1, 2, 3, 16)) if name in EXPENSIVE else draw.choice((1, 2, 3, 8, 64, 2**31, 2**40)))
    if hint is float:
        return str(draw.choice((0.0, 1e-6, 0.1, 0.5, 1.0, 3.0, 1e6)))
    return draw.choice(("cpu", "test", "validation", "byol", "digits", SMALL_ENCODER, "x.csv"))
