"""hypersphere demo: train three encoders on handwritten digits and compare them."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from hypersphere.cli.next_step import print_next
from hypersphere.cli.parsing import parse


@dataclasses.dataclass(frozen=True)
class DemoOptions:
    """Train BYOL, BYOL + Uni and BYOL-MHE on the digits of scikit-learn and compare them, in a table and on a page."""

    out: Path = Path("runs/demo")
    """Folder for the runs and the table."""
    seed: int = 0
    """Seed of all three runs."""
    epochs: int | None = None
    """Passes over the images. None: those of the recipe."""


def run(words: Sequence[str]) -> None:
    options = parse("demo", DemoOptions, words)
    from hypersphere.report.page import write_report
    from hypersphere.runs.demo import NAMES, demo

    folder = demo(**vars(options))
    page = folder.resolve() / "report.html"
    write_report([folder / name for name in NAMES], page)
    print(f"Open in a browser to compare them: {page}")
    print_next("pretrain", "--data", "FOLDER_OF_IMAGES")
