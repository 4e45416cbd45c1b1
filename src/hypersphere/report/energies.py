"""Energies of layers on the terminal: a table with a bar for each layer."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from hypersphere.inference.energies import EnergyChange, LayerEnergy
from hypersphere.util.console import pluralize, table_console

BAR = 20  # characters


def print_energies(found: Mapping[str, LayerEnergy]) -> None:
    """Print a row for each layer, with a bar for its energy above that of an even spread."""
    rows = [
        (name, f"{e.neurons:,} × {e.dimensions:,}", f"{e.energy:.4f}", f"{e.even:.4f}", f"{100 * e.excess:+.1f} %")
        for name, e in found.items()
    ]
    _print_table(("layer", "neurons", "energy", "even", "excess"), rows, [e.excess for e in found.values()])
    print(f"{pluralize(len(found), 'layer')}. excess: energy above that of an even spread, 0 % if there is none.")


def print_changes(found: Mapping[str, EnergyChange]) -> None:
    """Print a row for each layer, with a bar for the change of its energy."""
    rows = [
        (
            name,
            f"{c.before.energy:.4f}",
            f"{c.after.energy:.4f}",
            f"{100 * c.change:+.2f} %",
            f"{math.degrees(c.turned):.2f}°",
        )
        for name, c in found.items()
    ]
    _print_table(("layer", "before", "after", "change", "turned"), rows, [c.change for c in found.values()])
    print(f"{pluralize(len(found), 'layer')}. turned: mean angle by which the directions of neurons differ.")


def to_json(found: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers as JSON takes them."""
    return {name: dataclasses.asdict(value) for name, value in found.items()}


def _print_table(headers: tuple[str, ...], rows: Sequence[tuple[str, ...]], values: list[float]) -> None:
    from rich.table import Table

    table = Table()
    for place, header in enumerate(headers):
        table.add_column(header, justify="right" if place else "left", overflow="fold")
    table.add_column("")
    finite = [abs(value) for value in values if math.isfinite(value)]
    largest = max(finite, default=0.0) or 1.0
    for row, value in zip(rows, values, strict=True):
        length = BAR if not math.isfinite(value) else round(BAR * abs(value) / largest)
        table.add_row(*row, ("█" if value >= 0 else "░") * length)
    table_console().print(table)
