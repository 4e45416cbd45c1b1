"""hypersphere bench: how fast this machine is."""

import dataclasses
from pathlib import Path
from typing import Any, Literal

from hypersphere.cli.options import parse, take_word
from hypersphere.config import Config
from hypersphere.errors import UserError


@dataclasses.dataclass(frozen=True)
class BenchOptions:
    # Methods whose update is timed; those with an energy also with it on all layers.
    methods: tuple[str, ...] = ("byol", "byol-mhe")
    # What to measure: a whole update and its stages, the time to the first one, the linear probes, the energy of many
    # neurons, views on one core; when asked for also whether losses agree with the float32 reference's, what is
    # measured during training, and updates fed from image files (drawn ones, or those of a folder given as data).
    parts: tuple[Literal["step", "first", "probes", "energy", "views", "agreement", "monitors", "files"], ...] = (
        "step",
        "first",
        "probes",
        "energy",
        "views",
    )
    # The same work through another library as well, where it is installed.
    peer: Literal["lightly"] | None = None
    # Data set, or a folder of images.
    data: str = "cifar10"
    # Encoder (None: the recipe's).
    encoder: str | None = None
    # Images per update (None: the recipe's).
    batch: int | None = None
    # Arithmetic of the networks.
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    # auto: the GPU if there is one.
    device: str = "auto"
    # Folder of the data files (None: $HYPERSPHERE_DATA, or ~/.cache/hypersphere/data).
    root: Path | None = None
    # Folder of the figures, a file a machine.
    out: Path = Path("benchmarks")

    @property
    def configs(self) -> list[Config]:
        given: dict[str, Any] = {"precision": self.precision, "device": self.device, "root": self.root}
        chosen = {"batch": self.batch, "encoder": self.encoder}
        given |= {name: value for name, value in chosen.items() if value is not None}
        from hypersphere.runs.recipes import recipe_for

        plain = [recipe_for(method, self.data, **given) for method in self.methods]
        layers = ("encoder", "projector", "predictor")
        return plain + [config.replace(energy_layers=layers) for config in plain if config.energy]


def bench(words: list[str]) -> None:
    take_word(words, BenchOptions)
    about = "Time updates, probes, views and energies here, beside what the machine could do."
    options = parse(BenchOptions, words, "hypersphere bench", about, BenchOptions())
    if not options.methods or not options.parts:
        raise UserError("`methods` and `parts` must name at least one each")
    configs = options.configs
    from hypersphere.bench import bench as measure

    found, file = measure(configs, options.parts, options.peer is not None, options.out)
    for part, rows in found.items():
        _print_figures(part, rows)
    print(f"written to {file}")


def _print_figures(part: str, rows: dict[str, dict[str, float]]) -> None:
    from rich.table import Table

    from hypersphere.util.progress import table_console

    names = list(dict.fromkeys(name for figures in rows.values() for name in figures))
    table = Table(part, *rows, title=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for name in names:
        table.add_row(name.replace("_", " "), *(_figure(figures.get(name)) for figures in rows.values()))
    table_console().print(table)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
