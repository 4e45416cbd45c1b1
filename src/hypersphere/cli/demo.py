"""hypersphere demo: the main job on embedded data."""

import dataclasses
from pathlib import Path

from hypersphere.cli.options import parse, take_word


@dataclasses.dataclass(frozen=True)
class DemoOptions:
    # Where to write.
    out: Path = Path("runs/demo")
    # Seed of all three runs.
    seed: int = 0
    # Passes over the digits (None: the recipe's).
    epochs: int | None = None


def demo(words: list[str]) -> None:
    take_word(words, DemoOptions)
    about = "Pretrain BYOL, BYOL + Uni and BYOL-MHE on embedded digits and compare them."
    options = parse(DemoOptions, words, "hypersphere demo", about, DemoOptions())
    from hypersphere.runs.demo import demo as run_demo

    run_demo(**vars(options))
