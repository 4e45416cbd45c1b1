"""hypersphere evaluate: measure the accuracy of an encoder."""

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from hypersphere.cli.next_step import print_next
from hypersphere.cli.parsing import parse
from hypersphere.errors import UserError
from hypersphere.probes import BASELINE, PROBES, TRANSFER_PROBES, Probe, baseline_of, title_of

RESULTS = {"few-shot": ("1-shot", "5-shot")}  # names of the results of a probe, if not its own
FEW = 1000  # held-out images; with that many, an accuracy is known to ± 3 points


@dataclasses.dataclass(frozen=True)
class EvaluateOptions:
    """Measure what can be read from a run's encoder."""

    run: Annotated[str, Positional, arg(metavar="RUN")]
    """Folder that pretrain wrote."""
    probes: tuple[Probe, ...] = ()
    """What to measure; `linear` is the paper's. `fine-tune` trains a copy of the whole network on all labels, `semi-10`
    and `semi-1` on 10 % and 1 % of them. If not given: linear, linear-cached, knn and few-shot; with --transfer,
    linear-cached and knn."""
    transfer: tuple[str, ...] = ()
    """Measure on these datasets, labelled folders or arrays, instead of the run's own data."""
    holdout: Literal["validation", "test"] | None = None
    """Images to measure on. None: those that the run held out."""
    device: str = "auto"
    """Device, such as cpu or cuda:1. auto: the GPU if there is one."""
    root: Path | None = None
    """Folder of the dataset files, or the new location of the run's images. None: the run's."""
    again: bool = False
    """Measure again what is in evaluation.json already."""
    trust: bool = False
    """Import and run code that the run names: its author's own method, encoder, regularizer or data. Runs that you made
    do not need it."""


def run(words: Sequence[str]) -> None:
    options = parse("evaluate", EvaluateOptions, words)
    from hypersphere.runs.results import evaluations_of
    from hypersphere.runs.run import load_run
    from hypersphere.util.console import notify

    run = load_run(options.run, options.device, root=None if options.transfer else options.root, trust=options.trust)
    if options.transfer:
        run.config = run.config.replace(root=options.root or run.config.root)
    probes = options.probes or (TRANSFER_PROBES if options.transfer else PROBES)
    holdout = options.holdout or run.config.holdout
    known = {} if options.again else evaluations_of(run.path, run.config.hash, run.step).get(holdout, {})
    todo, found = split_known(probes, options.transfer, known)
    if found:
        own = ", ".join(name for name, values in found.items() if _is_own(name, values))
        notify(f"measured before: {own} (--again repeats them)")
    problems: list[UserError] = []
    if todo:

        def show(part: dict[str, dict[str, float]]) -> None:
            found.update(part)
            try:
                run.keep(part, holdout)
            except UserError as error:  # reported when all is shown
                problems.append(error)
            for name, values in part.items():
                if _is_own(name, values):
                    notify(f"{_probe_title(name, values)}: {values['top1']:.2f} %")

        run.measure(todo, holdout, transfer=options.transfer, progress=True, baseline=True, after_probe=show)
    steps = run.step
    with contextlib.suppress(UserError):  # the run's own data may be gone, and with it the number of its steps
        steps = run.steps
    unfinished = f", step {run.step} of {steps}" if run.step < steps else ""
    of = f" of {', '.join(options.transfer)}" if options.transfer else ""
    _print_evaluation(found, f"{run.config.title} on {run.config.data}{unfinished}, {holdout} images{of}")
    if problems:
        raise problems[0]
    print(f"written to {run.path / 'evaluation.json'}")
    print_next("report", run.path)


def split_known(
    probes: Sequence[Probe], transfer: Sequence[str], known: dict[str, dict[str, float]]
) -> tuple[list[Probe], dict[str, dict[str, float]]]:
    """Probes that are still to be run, and the results of the others.

    Args:
        probes: Those that are wanted.
        transfer: Datasets to measure on, instead of the run's.
        known: Results by name.

    Returns:
        The probes whose results are not all known, and the known results of the others.
    """
    prefixes = [f"transfer/{name.strip('/')}/" for name in transfer] or [""]
    finished = {
        probe: [f"{prefix}{name}" for prefix in prefixes for name in RESULTS.get(probe, (probe,))] for probe in probes
    }
    todo = [probe for probe, names in finished.items() if not known.keys() >= {*names}]
    names = {name for probe, names in finished.items() if probe not in todo for name in names}
    beside = {f"{prefix}{name}" for prefix in prefixes for name in ("sphere", "labels")} if names else set()
    beside |= {*map(baseline_of, names)}
    return todo, {name: values for name, values in known.items() if name in names | beside}


def _print_evaluation(found: dict[str, dict[str, float]], title: str) -> None:
    from rich.table import Table

    from hypersphere.util.console import table_console

    compared = any(BASELINE in name for name in found)
    heads = ("top-1 %", *(("random %",) if compared else ()), "chance %", "top-5 %")
    table = Table("probe")
    for head in heads:
        table.add_column(head, justify="right")
    for name, values in found.items():
        if _is_own(name, values):
            prefix = name[: name.rfind("/") + 1]
            random = [_top1(found.get(baseline_of(name), {}))] if compared else []
            labels = found.get(f"{prefix}labels", {})
            chance, told = labels.get("chance"), labels.get("classes", 6) > 5
            top5 = f"{values['top5']:.2f}" if "top5" in values and told else "–"
            cells = (*random, "–" if chance is None else f"{chance:.2f}", top5)
            table.add_row(_probe_title(name, values), _top1(values), *cells)
    print(title)  # the table would wrap it to its own width
    table_console().print(table)
    for name, values in found.items():
        if "images" in values:
            whose = name.removesuffix("sphere") + "features"
            print(f"{whose} of {values['images']:,} held-out images: {_describe_features(values)}")
            if values["images"] < FEW:
                points = 196 * math.sqrt(0.25 / values["images"])  # a proportion's 95 % interval is widest at a half
                print(f"few images: accuracies are uncertain by up to ± {points:.0f} points")


def _is_own(name: str, values: dict[str, float]) -> bool:
    """Whether these are an accuracy of the run's encoder."""
    return "top1" in values and BASELINE not in name


def _top1(values: dict[str, float]) -> str:
    interval = f" ± {values['interval']:.2f}" if "interval" in values else ""
    return f"{values['top1']:.2f}{interval}" if "top1" in values else "–"


def _describe_features(values: dict[str, float]) -> str:
    zeros = f"{values['zero_rows']:,} are zero" if "zero_rows" in values else ""
    if "uniformity" not in values:
        return zeros
    shape = f"uniformity {values['uniformity']:.3f}, effective rank {values['effective_rank']:.1f}"
    return f"{zeros}, of the others {shape}" if zeros else shape


def _probe_title(name: str, values: dict[str, float]) -> str:
    return f"{name} ({values['labels']} labels)" if "labels" in values else title_of(name, values)
