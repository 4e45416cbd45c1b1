"""hypersphere pretrain | evaluate | demo | data"""

import contextlib
import dataclasses
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from hypersphere.errors import UserError

COMMANDS: dict[str, tuple[Callable[[list[str]], None], str]] = {}


def command(summary: str) -> Callable[[Callable[[list[str]], None]], Callable[[list[str]], None]]:
    def register(function: Callable[[list[str]], None]) -> Callable[[list[str]], None]:
        COMMANDS[function.__name__] = (function, summary)
        return function

    return register


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one line on standard error and status 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if not words or words[0] in ("-h", "--help", "help"):
            _print_commands()
        elif words[0] == "--version":
            from hypersphere import __version__

            print(f"hypersphere {__version__}")
        elif words[0] not in COMMANDS:
            raise UserError(f"unknown command {words[0]!r} (there are {', '.join(COMMANDS)})")
        else:
            COMMANDS[words[0]][0](words[1:])
    except UserError as error:
        print(f"hypersphere: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt as interrupt:
        print(f"hypersphere: {str(interrupt) or 'interrupted'}", file=sys.stderr)
        return 128 + getattr(interrupt, "signum", signal.SIGINT)
    return 0


def _print_commands() -> None:
    print("hypersphere: self-supervised representation learning on the unit hypersphere\n")
    for name, (_, summary) in COMMANDS.items():
        print(f"  hypersphere {name:9} {summary}")
    print("\nhypersphere COMMAND --help explains each.")


@command("METHOD   learn an encoder: byol, byol-uni, byol-mhe or simclr")
def pretrain(words: list[str]) -> None:
    from hypersphere.config import PRESETS, Config, recipe
    from hypersphere.run import agreeing, go_on, load_config, start, with_preset

    method = words.pop(0) if words and not words[0].startswith("-") else None
    resume = _take(words, "--resume")
    data = _peek(words, "--data")
    asks = any(word in ("-h", "--help") for word in words)
    about = (
        f"Learn an encoder from unlabelled images. METHOD: {', '.join(PRESETS)}.\n\n"
        "The defaults below depend on METHOD and --data. --resume RUN goes on with an interrupted run."
    )
    if resume is None and method is None and not asks:
        raise UserError(f"say which method to train, first: hypersphere pretrain METHOD … ({', '.join(PRESETS)})")
    prog = "hypersphere pretrain METHOD"
    if resume is None:
        run = start(parse(Config, words, prog, about, recipe(method or "byol", data or "cifar10")))
    else:
        saved = load_config(resume)
        run = go_on(
            Path(resume), agreeing(saved, parse(Config, words, prog, about, with_preset(saved, method)), resume)
        )
    print(f"{run.path}: {run.config.title} on {run.config.data}, {run.step} updates in {run.seconds:.0f} s")
    print(f"next: hypersphere evaluate {run.path}")


@dataclasses.dataclass(frozen=True)
class EvaluateOptions:
    # What to measure; linear is the paper's, and takes longest.
    probes: tuple[Literal["linear", "linear-cached", "knn", "few-shot"], ...] = (
        "linear",
        "linear-cached",
        "knn",
        "few-shot",
    )
    # On which images (None: those the run held out).
    holdout: Literal["validation", "test"] | None = None
    # auto: the GPU if there is one.
    device: str = "auto"
    # Folder of the data files (None: the run's).
    root: Path | None = None


@command("RUN      measure an encoder: linear probes, k-NN, few-shot")
def evaluate(words: list[str]) -> None:
    from hypersphere.run import load_run

    path = words.pop(0) if words and not words[0].startswith("-") else None
    about = "Measure what can be read from a run's encoder. RUN: the folder that pretrain wrote."
    options = parse(EvaluateOptions, words, "hypersphere evaluate RUN", about, EvaluateOptions())
    if path is None:
        raise UserError("say which run to evaluate: hypersphere evaluate RUN")
    run = load_run(path, options.device)
    if options.root is not None:
        run.config = run.config.replace(root=options.root)
    found = run.evaluate(options.probes, options.holdout, progress=True)
    _print_evaluation(found, f"{run.config.title} on {run.config.data}, {options.holdout or run.config.holdout} images")
    print(f"written to {run.path / 'evaluation.json'}")


def _print_evaluation(found: dict[str, dict[str, float]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("probe", title=title)
    table.add_column("top-1 %", justify="right")
    table.add_column("top-5 %", justify="right")
    for probe, values in found.items():
        if "top1" in values:
            name = f"{values['k']}-NN" if "k" in values else probe
            interval = f" ± {values['interval']:.2f}" if "interval" in values else ""
            top5 = f"{values['top5']:.2f}" if "top5" in values else "–"
            table.add_row(name, f"{values['top1']:.2f}{interval}", top5)
    sphere = found["sphere"]
    Console().print(table)
    print(f"features: uniformity {sphere['uniformity']:.3f}, effective rank {sphere['effective_rank']:.1f}")


@dataclasses.dataclass(frozen=True)
class DemoOptions:
    # Where to write.
    out: Path = Path("runs/demo")
    # Seed of all three runs.
    seed: int = 0
    # Passes over the digits (None: the recipe's).
    epochs: int | None = None


@command("         three encoders learnt from handwritten digits, in minutes on a CPU")
def demo(words: list[str]) -> None:
    from hypersphere.demo import demo as run_demo

    about = "Pretrain BYOL, BYOL + Uni and BYOL-MHE on embedded digits and compare them."
    run_demo(**vars(parse(DemoOptions, words, "hypersphere demo", about, DemoOptions())))


@dataclasses.dataclass(frozen=True)
class DataOptions:
    # Folder of the data files (None: $HYPERSPHERE_DATA, or a cache folder).
    root: Path | None = None


@command("[NAME]   list the data sets, or fetch one")
def data(words: list[str]) -> None:
    from hypersphere.data import SOURCES, default_root, load_data

    name = words.pop(0) if words and not words[0].startswith("-") else None
    about = "List the data sets; with NAME, fetch that one and check it."
    options = parse(DataOptions, words, "hypersphere data [NAME]", about, DataOptions())
    if name is None:
        for key, source in SOURCES.items():
            print(f"{key:9} {source.summary}")
        return
    rest, validation = load_data(name, "validation", options.root)
    train, test = load_data(name, "test", options.root)
    split = f"{len(rest):,} + {len(validation):,} for validation"
    where = options.root or default_root()
    print(f"{name} in {where}: {len(train):,} training images ({split}), {len(test):,} test images")


def parse(kind: Any, words: list[str], prog: str, about: str, default: Any) -> Any:
    """Options by tyro; its boxed message of a mistake becomes one line."""
    import tyro

    captured = io.StringIO()
    try:
        with contextlib.redirect_stderr(captured):
            return tyro.cli(kind, prog=prog, description=about, args=words, default=default)
    except SystemExit as stopped:
        if not stopped.code:
            raise
        raise UserError(_one_line(captured.getvalue())) from None


def _one_line(box: str) -> str:
    lines = [line.strip("│╭╮╰╯─ \n") for line in box.splitlines()]
    lines = [line for line in lines[1:] if line]
    message = " ".join(lines[: next((i for i, line in enumerate(lines) if "help" in line or "Perhaps" in line), 1)])
    message = message.removeprefix("Error parsing Config: ").replace("Unrecognized options", "unknown option")
    hint = next((lines[i + 1].split()[0] for i, line in enumerate(lines) if line.startswith("Perhaps")), None)
    return message + (f" (did you mean {hint}?)" if hint else "")


def _peek(words: list[str], option: str) -> str | None:
    for place, word in enumerate(words):
        if word == option and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(option + "="):
            return word.split("=", 1)[1]
    return None


def _take(words: list[str], option: str) -> str | None:
    value = _peek(words, option)
    if value is None and option in words:
        raise UserError(f"{option} needs a value")
    if value is not None:
        place = next(i for i, word in enumerate(words) if word == option or word.startswith(option + "="))
        del words[place : place + (2 if words[place] == option else 1)]
    return value


if __name__ == "__main__":
    sys.exit(main())
