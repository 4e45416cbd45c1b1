"""The tables of a report: what the runs achieved, and how they were configured."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from hypersphere.probes import BASELINE, baseline_of, title_of
from hypersphere.report.run_data import RunData
from hypersphere.report.templating import number

NONE = "–"
MANY_CLASSES = 20  # with more, top-5 accuracy is shown as well

Rows = list[list[str]]


def summary(runs: Sequence[RunData]) -> tuple[list[str], Rows]:
    """Header and rows, one per run: the last measurements during training, then the numbers of evaluation.json."""
    probes = list(dict.fromkeys(key for run in runs for key in evaluated(run)))
    head = ["run", "data", "epochs", "last k-NN, %", "uniformity", *(f"{probe}, {split}" for split, probe in probes)]
    rows = [
        [
            Markup('<span class="run">{}<small>{}</small></span>').format(run.label, run.path),
            run.config.data,
            _epochs(run),
            _number(run.last("knn"), 1),
            _number(run.last("uniformity_of_features"), 2),
            *(evaluated(run).get(key, NONE) for key in probes),
        ]
        for run in runs
    ]
    return head, rows


def _number(value: float | None, digits: int) -> str:
    return NONE if value is None else number(value, digits)


def _epochs(run: RunData) -> str:
    if run.epoch_steps is None:
        return f"{run.step} updates"
    return f"{run.step // run.epoch_steps} of {run.config.epochs}"


def evaluated(run: RunData) -> dict[tuple[str, str], str]:
    """Accuracies in evaluation.json, by split and probe."""
    found, many = {}, run.written_by.get("classes", 0) > MANY_CLASSES
    for split, probes in run.evaluation.items():
        for probe, values in probes.items() if isinstance(probes, dict) else ():
            accuracy = _accuracy(values, many)
            if accuracy is not None and BASELINE not in probe:
                random = _accuracy(probes.get(baseline_of(probe)), many=False)
                accuracy += f" (random {random})" if random else ""
                found[split, title_of(probe, values)] = accuracy
    return found


def _accuracy(values: Any, many: bool) -> str | None:
    try:
        half = f" ± {values['interval']:.1f}" if "interval" in values else ""
        further = f" (top-5 {values['top5']:.1f})" if many and "top5" in values else ""
        return f"{values['top1']:.1f}{half}{further}"
    except (KeyError, TypeError, ValueError):  # measures of the sphere, or not an evaluation
        return None


class Configs(NamedTuple):
    """The options of all runs, a row each."""

    head: list[str]
    differing: Rows
    same: Rows


def configs(runs: Sequence[RunData]) -> Configs:
    """Options that differ between the runs, and those that are the same."""
    columns = [
        {**run.config.to_json(), **{f"run.json: {name}": value for name, value in run.written_by.items()}}
        for run in runs
    ]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [[name, *(_value(column.get(name)) for column in columns)] for name in names]
    differing = [row for row in rows if len(set(row[1:])) > 1]
    return Configs(["option", *(run.label for run in runs)], differing, [row for row in rows if row not in differing])


def _value(value: Any) -> str:
    return value if isinstance(value, str) else NONE if value is None else json.dumps(value, ensure_ascii=False)
