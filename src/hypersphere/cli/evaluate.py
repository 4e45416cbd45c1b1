"""hypersphere evaluate: measure an encoder."""

import contextlib
import dataclasses
import math
from pathlib import Path
from typing import Literal

from hypersphere.cli.options import parse, peek, take_word
from hypersphere.errors import UserError
from hypersphere.probes import PROBES, TRANSFER_PROBES, Probe

FEW = 1000  # held-out images, with which an accuracy is known to ± 3 points


@dataclasses.dataclass(frozen=True)
class EvaluateOptions:
    # What to measure; linear is the paper's. fine-tune trains a copy of the whole network on all labels, semi-10 and
    # semi-1 on 10 % and 1 % of them.
    probes: tuple[Probe, ...] = PROBES
    # Other data sets, or folders and arrays with labels, on which to measure instead of the run's own: by linear-cached
    # and knn, if --probes is not said.
    transfer: tuple[str, ...] = ()
    # On which images (None: those the run held out).
    holdout: Literal["validation", "test"] | None = None
    # auto: the GPU if there is one.
    device: str = "auto"
    # Folder of the data files (None: the run's); of a run on a folder of images that has moved, that folder.
    root: Path | None = None


def evaluate(words: list[str]) -> None:
    path = take_word(words, EvaluateOptions, "RUN")
    about = "Measure what can be read from a run's encoder. RUN: the folder that pretrain wrote."
    default = EvaluateOptions(probes=PROBES if peek(words, "--transfer") is None else TRANSFER_PROBES)
    options = parse(EvaluateOptions, words, "hypersphere evaluate RUN", about, default)
    if path is None:
        raise UserError("say which run to evaluate: hypersphere evaluate RUN")
    from hypersphere.runs.run import load_run

    run = load_run(path, options.device, root=None if options.transfer else options.root)
    if options.transfer:
        run.config = run.config.replace(root=options.root or run.config.root)
    found = run.measure(options.probes, options.holdout, transfer=options.transfer, progress=True)
    try:
        run.keep(found, options.holdout)  # before anything that may fail: how long the run is, its data know
    finally:
        steps = run.step
        with contextlib.suppress(UserError):  # its own data may have gone since
            steps = run.steps
        unfinished = f", update {run.step} of {steps}" if run.step < steps else ""
        holdout = options.holdout or run.config.holdout
        of = f" of {', '.join(options.transfer)}" if options.transfer else ""
        _print_evaluation(found, f"{run.config.title} on {run.config.data}{unfinished}, {holdout} images{of}")
    print(f"written to {run.path / 'evaluation.json'}")


def _print_evaluation(found: dict[str, dict[str, float]], title: str) -> None:
    from rich.table import Table

    from hypersphere.util.progress import table_console

    table = Table("probe", title=title)
    table.add_column("top-1 %", justify="right")
    table.add_column("top-5 %", justify="right")
    for name, values in found.items():
        if "top1" in values:
            interval = f" ± {values['interval']:.2f}" if "interval" in values else ""
            top5 = f"{values['top5']:.2f}" if "top5" in values else "–"
            table.add_row(_probe_title(name, values), f"{values['top1']:.2f}{interval}", top5)
    table_console().print(table)
    for name, values in found.items():
        if "images" in values:
            whose = name.removesuffix("sphere") + "features"
            print(f"{whose} of {values['images']:,} held-out images: {_shape_told(values)}")
            if values["images"] < FEW:
                points = 196 * math.sqrt(0.25 / values["images"])  # a proportion's 95 % interval is widest at a half
                print(f"so few images: an accuracy is known to ± {points:.0f} points, at worst")


def _shape_told(values: dict[str, float]) -> str:
    zeros = f"{values['zero_rows']:,} are zero" if "zero_rows" in values else ""
    if "uniformity" not in values:
        return zeros
    shape = f"uniformity {values['uniformity']:.3f}, effective rank {values['effective_rank']:.1f}"
    return f"{zeros}, of the others {shape}" if zeros else shape


def _probe_title(name: str, values: dict[str, float]) -> str:
    if "k" in values:
        return name.removesuffix("knn") + f"{values['k']}-NN"
    return f"{name} ({values['labels']} labels)" if "labels" in values else name
