"""Differences between the rows of a sweep's table, with their intervals over seeds."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hypersphere.runs.results import Result
from hypersphere.sweeps.grid import Point, grouped, numbers_of
from hypersphere.util.estimates import Effect, combine, pooled_spread


class Difference(NamedTuple):
    """A row of the table minus the first one.

    Attributes:
        values: The swept options of the row.
        effects: The difference in each measure, with its standard error.
        half_widths: Half of the 95 % interval of each, which all differences of a measure keep together (Dunnett); None
            if a row has a single run.
    """

    values: dict[str, Any]
    effects: dict[str, Effect]
    half_widths: dict[str, float | None]


def differences(points: Sequence[Point], found: Mapping[str, Result]) -> list[Difference]:
    """Each row but the first one minus the first, for rows that have a run that has not diverged.

    The variance over seeds is pooled over rows if Bartlett's test does not refuse it, and Welch's otherwise.
    """
    first, *others = [_by_measure(group, found) for group in grouped(points)]
    values = [_swept(group[0]) for group in grouped(points)[1:]]
    names = list(dict.fromkeys(name for row in others for name in row if name in first))
    effects: dict[str, dict[int, Effect]] = {name: {} for name in names}
    for name in names:
        rows = {"0": first[name], **{str(n): row[name] for n, row in enumerate(others, 1) if name in row}}
        spread, alike = pooled_spread(rows)
        for row, numbers in list(rows.items())[1:]:
            shared = spread if {"0", row} <= alike else None
            effects[name][int(row)] = combine([numbers, first[name]], [1.0, -1.0], shared)
    return [
        Difference(
            own,
            {name: effects[name][n] for name in names if n in effects[name]},
            {name: _half_width(effects[name][n], len(effects[name])) for name in names if n in effects[name]},
        )
        for n, own in enumerate(values, 1)
    ]


def _half_width(effect: Effect, rows: int) -> float | None:
    if not effect.spread or not math.isfinite(effect.error):
        return None
    others, first = effect.n
    return effect.critical(rows, first / others) * effect.error


def _by_measure(group: Sequence[Point], found: Mapping[str, Result]) -> dict[str, list[float]]:
    by_name: dict[str, list[float]] = {}
    for result in (found[point.name] for point in group if point.name in found):
        for name, number in numbers_of(result).items():
            if math.isfinite(number):
                by_name.setdefault(name, []).append(number)
    return by_name


def _swept(point: Point) -> dict[str, Any]:
    return {name: value for name, value in point.values.items() if name != "seed"}
