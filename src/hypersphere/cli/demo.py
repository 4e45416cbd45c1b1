"""hypersphere demo: train three encoders on handwritten digits and compare them."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from hypersphere.cli.options import parse


@dataclasses.dataclass(frozen=True)
class DemoOptions:
    """Train BYOL, BYOL + Uni and BYOL-MHE on the digits of scikit-learn and compare them."""

    out: Path = Path("runs/demo")
    """Folder for the runs and the table."""
    seed: int = 0
    """Seed of all three runs."""
    epochs: int | None = None
    """Passes over the images. None: those of the recipe."""


def run(words: Sequence[str]) -> None:
    options = parse("demo", DemoOptions, words)
    from hypersphere.runs.demo import demo

    demo(**vars(options))
