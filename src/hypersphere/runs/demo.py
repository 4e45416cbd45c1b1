"""The demo: train three encoders on unlabelled digits, and compare them with raw pixels and a random encoder."""

import math
from pathlib import Path

from torch import nn

from hypersphere.config import recipe
from hypersphere.evaluate import Evaluation
from hypersphere.runs.machine import pick_device, provenance
from hypersphere.runs.pretraining import start
from hypersphere.runs.run import evaluate_on, random_encoder
from hypersphere.util.console import table_console
from hypersphere.util.files import next_free_folder, write_json

NAMES = {"byol": "BYOL", "byol-uni": "BYOL + Uni", "byol-mhe": "BYOL-MHE"}
LEGEND = """\
1, 5 labels  nearest class mean of 1 or 5 labelled images of each class
             (mean over 50 draws of them ± its 95 % interval)
20-NN        vote of the 20 nearest training images
linear       linear classifier on the features, with all labels
             (linear-cached: logistic regression on stored features)
uniformity   how evenly the features spread over the sphere:
             0 if all coincide, lower is more even
The encoders themselves were trained without labels."""
PROBES = ("few-shot", "knn", "linear-cached")


def demo(out: Path = Path("runs/demo"), seed: int = 0, epochs: int | None = None) -> Path:
    """Pretrain BYOL, BYOL + Uni and BYOL-MHE on digits, evaluate them, and print a table.

    Args:
        out: Folder of the runs; if it exists, the first free one of out-2, out-3, ….
        seed: Seed of the runs.
        epochs: Epochs of each run. By default those of the recipe.

    Returns:
        The folder, which also has the table as demo.json.
    """
    options = {"holdout": "test", "seed": seed, **({} if epochs is None else {"epochs": epochs})}
    base = recipe("byol", "digits", **options)
    folder = next_free_folder(out)
    rows: dict[str, Evaluation] = {
        "raw pixels": evaluate_on(nn.Flatten(), base, PROBES, "test"),
        "random encoder": evaluate_on(random_encoder(base), base, PROBES, "test"),
    }
    seconds: dict[str, float] = {}
    for preset, name in NAMES.items():
        try:
            run = start(recipe(preset, "digits", out=folder / preset, **options))
        except KeyboardInterrupt as stop:
            stop.args = ("stopped: to start over, run the demo again",)
            raise
        rows[name] = run.evaluate(PROBES)
        seconds[name] = run.seconds
    about = {"seed": seed, "epochs": base.epochs, **provenance(pick_device("auto"))}
    write_json(folder / "demo.json", {**about, "seconds": seconds, "results": rows})
    _print(rows, seconds)
    print(f"\nRuns, metrics and this table: {folder.resolve()}")
    return folder


def _print(rows: dict[str, Evaluation], seconds: dict[str, float]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Accuracy on test images of handwritten digits, %")
    table.add_column("encoder", no_wrap=True)
    for head in ("1 label", "5 labels", "20-NN", "linear", "uniformity", "time"):
        table.add_column(head, justify="right", no_wrap=True)
    for name, found in rows.items():
        shots = [f"{found[k]['top1']:.1f} ± {found[k]['interval']:.1f}" for k in ("1-shot", "5-shot")]
        others = [f"{found[k]['top1']:.1f}" for k in ("knn", "linear-cached")]
        spread = found["sphere"].get("uniformity", math.nan)
        table.add_row(name, *shots, *others, f"{spread:.2f}", f"{seconds[name]:.0f} s" if name in seconds else "–")
    console = table_console()
    console.print()
    console.print(table)
    console.print(LEGEND, highlight=False)
