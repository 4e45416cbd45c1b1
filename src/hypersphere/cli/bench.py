"""hypersphere bench: measure how fast this machine trains."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hypersphere.cli.next_step import print_next
from hypersphere.cli.parsing import parse

if TYPE_CHECKING:
    from hypersphere.config import Config


@dataclasses.dataclass(frozen=True)
class BenchOptions:
    """Time training steps, probes, views and energies, next to what the machine could reach."""

    methods: tuple[str, ...] = ("byol", "byol-mhe")
    """Methods to time. Methods with an energy are also timed with it on all layers."""
    parts: tuple[
        Literal["step", "first", "probes", "energy", "views", "agreement", "monitors", "files", "photos"], ...
    ] = (
        "step",
        "first",
        "probes",
        "energy",
        "views",
    )
    """What to measure. step: a training step and its stages. first: the time to the first step. probes: the linear
    probes. energy: the energy of many neurons. views: augmentation on one core. agreement: how far losses are from
    those of the float32 reference. monitors: the measures taken during training. files: training from image files.
    photos: training on photographs that are kept decoded, and from files."""
    peer: Literal["lightly"] | None = None
    """Do the same work with this library too, if it is installed."""
    data: str = "cifar10"
    """Dataset, or a folder of images."""
    encoder: str | None = None
    """Encoder. None: that of the recipe."""
    size: int | None = None
    """Side of the views in pixels. None: that of the recipe."""
    batch: int | None = None
    """Images per step. None: the batch of the recipe."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Floating-point format of the networks."""
    device: str = "auto"
    """Device, such as cpu or cuda:1. auto: the GPU if there is one."""
    root: Path | None = None
    """Folder of the dataset files. None: $HYPERSPHERE_DATA, or ~/.cache/hypersphere/data."""
    out: Path = Path("benchmarks")
    """Folder for the measurements, one file per machine."""


def run(words: Sequence[str]) -> None:
    options = parse("bench", BenchOptions, words)
    configs = _configs(options)
    from hypersphere.bench import bench

    found, file = bench(configs, options.parts, options.peer is not None, options.out)
    for part, rows in found.items():
        _print_table(part, rows)
    print(f"written to {file}")
    if options.peer is None:
        print_next("bench", "--peer", "lightly")


def _configs(options: BenchOptions) -> "list[Config]":
    from hypersphere.runs.recipes import recipe_for

    given: dict[str, Any] = {"precision": options.precision, "device": options.device, "root": options.root}
    chosen = {"batch": options.batch, "encoder": options.encoder, "size": options.size}
    given |= {name: value for name, value in chosen.items() if value is not None}
    plain = [recipe_for(method, options.data, **given) for method in options.methods]
    layers = ("encoder", "projector", "predictor")
    return plain + [config.replace(energy_layers=layers) for config in plain if config.energy]


def _print_table(part: str, rows: dict[str, dict[str, float]]) -> None:
    from rich.table import Table

    from hypersphere.util.console import table_console

    names = list(dict.fromkeys(name for figures in rows.values() for name in figures))
    table = Table(part, *rows, title=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for name in names:
        table.add_row(name.replace("_", " "), *(_format_number(figures.get(name)) for figures in rows.values()))
    table_console().print(table)


def _format_number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
