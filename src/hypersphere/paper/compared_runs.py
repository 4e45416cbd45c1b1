"""Writes the runs that methods are compared by, for `runs/recommend.py`.

Most are measured on validation images. The long runs are the paper's main cells with tuned options, on test images.

    python -m hypersphere.paper.compared_runs

writes src/hypersphere/runs/compared_runs.csv again from results/.
"""

import csv
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import hypersphere.runs.recommend
from hypersphere.paper.cells import AS_WRITTEN, TUNED, Cell, Protocol
from hypersphere.paper.comparison import COMPARISON
from hypersphere.paper.evidence import Evidence, measured
from hypersphere.paper.larger_steps import LARGER_STEPS
from hypersphere.paper.muon import MUON
from hypersphere.paper.photographs import PHOTOGRAPHS
from hypersphere.paper.rates import RATES
from hypersphere.paper.tables import BYOL, PREDICTOR_A2, UNI
from hypersphere.paper.tuning import TRIALS
from hypersphere.runs.recommend import FILE, ComparedRun
from hypersphere.runs.results import Result, read_results

# training and held-out images by what is held out, and the side of the encoder's input
DATASETS = {
    "cifar10": ({"validation": (45_000, 5_000), "test": (50_000, 10_000)}, 32),
    "imagenette-160": ({"validation": (8_969, 500), "test": (9_469, 3_925)}, 128),
}
TABLES = (COMPARISON, RATES, LARGER_STEPS, TRIALS, MUON, PHOTOGRAPHS)
LONG = (BYOL, UNI, PREDICTOR_A2)


def compared_runs(results: Sequence[Result]) -> list[ComparedRun]:
    """The runs of the tables that compare methods and options, the best first."""
    evidence = Evidence(results)
    cells = dict.fromkeys(cell for table in TABLES for cell in table.cells)
    compared = [_compared(cell, AS_WRITTEN, evidence) for cell in cells]
    compared += [_compared(cell, Protocol(tuned=True), evidence) for cell in LONG]
    found = (run for run in compared if run is not None)
    return sorted(found, key=lambda run: (run.setting, -run.knn, run.method))


def _compared(cell: Cell, protocol: Protocol, evidence: Evidence) -> ComparedRun | None:
    runs = [run for run in evidence.of(cell, protocol).values() if measured(run, "k-NN") is not None]
    if not runs:
        return None
    config, (counts, side) = runs[0].config, DATASETS[cell.data]
    images, tested = counts[config.holdout]
    options = {**cell.options, **(TUNED if protocol.tuned else {})}
    options = {name: value for name, value in options.items() if name not in ("holdout", "epochs", "size")}
    alone = [run.seconds / 60 for run in runs if run.seconds and "shared" not in run.about]
    linear = [value for run in runs if (value := measured(run, "linear-cached")) is not None]
    return ComparedRun(
        method=cell.method,
        options={name: value for name, value in options.items() if name != "encoder"},
        data=cell.data,
        images=images,
        side=side,
        encoder=config.encoder,
        epochs=config.epochs,
        knn=round(mean(measured(run, "k-NN") or 0.0 for run in runs), 2),
        linear=round(mean(linear), 2) if linear else None,
        minutes=round(mean(alone), 1) if alone else None,
        device=runs[0].about["device"],
        seeds=len(runs),
        holdout=config.holdout,
        tested=tested,
        source=f"hypersphere reproduce, cell {cell.name}{', tuned' * protocol.tuned}",
    )


def as_csv(runs: Sequence[ComparedRun]) -> str:
    """The content of the file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(ComparedRun._fields)
    for run in runs:
        row = run._replace(options=json.dumps(run.options))  # type: ignore[arg-type]
        writer.writerow(["" if value is None else value for value in row])
    return text.getvalue()


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "results")
    target = Path(hypersphere.runs.recommend.__file__).parent / FILE
    target.write_text(as_csv(compared_runs(read_results(folder))), encoding="utf-8")
    print(f"wrote {target}")
