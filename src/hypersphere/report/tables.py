"""What the runs came to, and how they were set up, side by side."""

import json
from collections.abc import Sequence
from typing import Any

from hypersphere.report.markup import Markup, element, number, table
from hypersphere.report.portrait import Portrait

NONE = "–"
MANY = 20  # classes, of which the first five say something


def summary(runs: Sequence[Portrait]) -> Markup:
    """A row a run: the last measurements on the way, then whatever evaluation.json holds of any of them."""
    probes = list(dict.fromkeys(key for run in runs for key in evaluated(run)))
    head = ["run", "data", "epochs", "last k-NN, %", "uniformity", *(f"{probe}, {on}" for on, probe in probes)]
    rows = [
        [
            _named(run),
            run.config.data,
            epochs(run),
            _number(run.last("knn"), 1),
            _number(run.last("uniformity_of_features"), 2),
            *(evaluated(run).get(key, NONE) for key in probes),
        ]
        for run in runs
    ]
    return table(head, rows, "Summary of the runs", class_="numbers")


def _named(run: Portrait) -> Markup:
    return element("span", run.label, element("small", str(run.path)), class_="run")


def _number(value: float | None, digits: int) -> str:
    return NONE if value is None else number(value, digits)


def epochs(run: Portrait) -> str:
    if run.epoch_steps is None:
        return f"{run.step} updates"
    return f"{run.step // run.epoch_steps} of {run.config.epochs}"


def evaluated(run: Portrait) -> dict[tuple[str, str], str]:
    """(held-out images, probe) → what evaluation.json says of it."""
    found, many = {}, run.written_by.get("classes", 0) > MANY
    for on, probes in run.evaluation.items():
        for probe, values in probes.items() if isinstance(probes, dict) else ():
            told = _told(values, many)
            if told is not None:
                found[on, probe.removesuffix("knn") + f"{values['k']}-NN" if "k" in values else probe] = told
    return found


def _told(values: Any, many: bool) -> str | None:
    try:
        half = f" ± {values['interval']:.1f}" if "interval" in values else ""
        further = f" (top-5 {values['top5']:.1f})" if many and "top5" in values else ""
        return f"{values['top1']:.1f}{half}{further}"
    except (KeyError, TypeError, ValueError):  # the sphere's measures, or no evaluation
        return None


def missing(runs: Sequence[Portrait]) -> Markup:
    told = [element("li", element("strong", run.label), f": {reason}") for run in runs for reason in run.missing]
    if not told:
        return Markup()
    return element("div", element("p", "Worth knowing:"), element("ul", *told), class_="absent")


def configs(runs: Sequence[Portrait]) -> Sequence[Markup]:
    """What differs is shown, what does not can be unfolded."""
    columns = [{**run.config.to_json(), **_origin(run)} for run in runs]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [[name, *(_value(column.get(name)) for column in columns)] for name in names]
    head = ["option", *(run.label for run in runs)]
    differing = [row for row in rows if len(set(row[1:])) > 1]
    same = [row for row in rows if len(set(row[1:])) == 1]
    shown = table(head, differing, "Options that differ", class_="differing") if differing else Markup()
    told = f"{len(same)} options are the same in all runs" if len(runs) > 1 else f"All {len(same)} options"
    folded = element("details", element("summary", told), table(head, same, "Options that are the same"))
    return shown, folded


def _origin(run: Portrait) -> dict[str, Any]:
    return {f"run.json: {name}": value for name, value in run.written_by.items()}


def _value(value: Any) -> str:
    return value if isinstance(value, str) else NONE if value is None else json.dumps(value, ensure_ascii=False)
