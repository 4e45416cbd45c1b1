"""A diagnosis as a terminal shows it."""

from typing import Any

from hypersphere.diagnosis import Diagnosis, Layer

_MARKS = {"good": ("✓", "green"), "weak": ("~", "yellow"), "bad": ("✗", "red"), "": ("·", "default")}
MOST = 6  # layers of weights that are shown


def print_diagnosis(found: Diagnosis) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(found.of, "bold"))
    for finding in found.findings:
        mark, colour = _MARKS[finding.health]
        number = f"{finding.name:21} {finding.measured!s:>18}  ({finding.against})"
        console.print(Text.assemble(Text(f"{mark} ", colour), number), soft_wrap=True)
        console.print(Text(f"  {finding.sentence}", "dim"), soft_wrap=True)
    for title, layers in (("outputs of its blocks", found.blocks), ("neurons of its layers", found.weights)):
        if layers:
            _print_layers(console, title, layers)
    console.print(Text(f"{found.verdict[0].upper()}{found.verdict[1:]}.", "bold"))
    marks = "  ".join(f"{mark} {health or 'no judgement'}" for health, (mark, _) in _MARKS.items())
    console.print(Text(f"{marks}\nG2: log of the mean of exp(−2 distance²), a2: mean of 1 / angle², over pairs", "dim"))


def _print_layers(console: Any, title: str, layers: list[Layer]) -> None:
    """In order; of many, those with most energy for their size."""
    highest = sorted(layers, key=lambda layer: -layer.times)
    few = len(layers) <= 2 * MOST
    shown = layers if few else [layer for layer in layers if layer in highest[:MOST]]
    told = "an even spread being 1, far more meaning that many nearly coincide"
    console.print(f"energy (a2) of the {title}, {told}{'' if few else f': {MOST} of {len(layers)}'}")
    for layer in shown:
        rank = "" if layer.rank is None else f"  effective rank {layer.rank:.1f}"
        console.print(f"  {layer.name:32} {layer.times:>10,.4g}{rank}", soft_wrap=True)
    if not few:
        middle, last = highest[len(layers) // 2], highest[-1]
        console.print(f"  of all: highest {highest[0].times:.4g}, median {middle.times:.4g}, lowest {last.times:.4g}")
