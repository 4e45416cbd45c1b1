"""Tables of `reproduce selection`: which measures without labels predict linear accuracy."""

import math
from collections.abc import Sequence

from rich.table import Table

from hypersphere.paper.selection import LEAST, Group, Prediction, accuracy_of, groups_of
from hypersphere.runs.results import Result
from hypersphere.util.console import table_console


def print_selection(results: Sequence[Result]) -> None:
    """Print a table for each group of runs, and which measures are missing."""
    groups = groups_of(results)
    if not groups:
        print(f"no {LEAST} runs of one dataset and protocol have a linear accuracy")
        return
    for group in groups:
        table_console().print(_table(group))
        for line in _missing(group):
            print(line)
        print()
    print("ρ: Spearman's rank correlation with linear accuracy and its 95 % interval, by bootstrap over runs.")
    print("points lost: accuracy of the best run minus that of the run which the measure prefers.")
    print("Runs that differ only by their seed count one by one, so intervals are too narrow if many do.")


def _table(group: Group) -> Table:
    accuracies = [accuracy_of(run) for run in group.runs]
    spread = f"{len(group.runs)} runs, accuracy {min(accuracies):.1f} to {max(accuracies):.1f} %"
    table = Table("measure", "runs", "ρ", "95 % interval", "points lost", title=f"{group.title}: {spread}")
    for prediction in sorted((p for p in group.predictions if p.runs >= LEAST), key=_by_rho):
        cells = [f"{prediction.rho:+.2f}", f"{prediction.low:+.2f} to {prediction.high:+.2f}", f"{prediction.lost:.2f}"]
        table.add_row(prediction.measure.title, str(prediction.runs), *cells)
    return table


def _by_rho(prediction: Prediction) -> float:
    return -prediction.rho if math.isfinite(prediction.rho) else math.inf


def _missing(group: Group) -> list[str]:
    """Measures that runs of the group lack."""
    lines, total = [], len(group.runs)
    absent = [p.measure.title.partition(" (")[0] for p in group.predictions if not p.runs]
    if absent:
        lines.append(f"No run has {', '.join(absent)}: these runs are older than the measures.")
    some = [p for p in group.predictions if 0 < p.runs < total]
    partial = [f"{p.measure.title.partition(' (')[0]} ({total - p.runs} of {total})" for p in some]
    if partial:
        lines.append(f"Some runs lack {', '.join(partial)}.")
    return lines
