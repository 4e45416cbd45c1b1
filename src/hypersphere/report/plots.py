"""The figures of RESULTS.md, drawn with matplotlib. Lines differ in dashes as well as in colour."""

import contextlib
import io
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from hypersphere.diagnostics import plane_density, von_mises_density
from hypersphere.paper.cells import AS_WRITTEN, Row
from hypersphere.paper.evidence import Evidence
from hypersphere.paper.figures import FIGURES, Figure
from hypersphere.paper.tables import BY_BATCH, BY_UPDATE, TABLES
from hypersphere.runs.results import Result
from hypersphere.util.files import make_folder, write_atomically
from hypersphere.util.optional import require

STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "savefig.bbox": "tight",
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "hypersphere",
    "svg.fonttype": "none",
}
DASHES = ("-", "--", ":", "-.")
COLOURS = ("#1b6ca8", "#c4452d", "#3f7d4e", "#7a4f9a")
TOP = 0.8  # upper end of the axis of angle densities: five times the uniform density
STAGES = ("layer1", "layer2", "layer3", "layer4")
Runs = dict[str, Sequence[Result]]  # title → its runs, one per seed


def draw_figures(evidence: Evidence, folder: Path, figures: dict[str, Figure] = FIGURES) -> dict[str, Path]:
    """Draw all figures whose runs are there. Figures on the circle are drawn as soon as one panel has run.

    Args:
        evidence: All results.
        folder: Where to write the files.
        figures: The figures, by name.

    Returns:
        Paths of the figures that were drawn, by name.
    """
    drawn = {}
    for figure in figures.values():
        protocol = evidence.whole(figure.needed)
        if protocol is None and figure.kind == "circle" and any(evidence.of(cell) for cell in figure.cells):
            protocol = AS_WRITTEN
        if protocol is not None:
            runs: Runs = {title: [*evidence.of(cell, protocol).values()] for title, cell in figure.panels}
            drawn[figure.name] = draw(figure, runs, folder)
    return drawn


def draw(figure: Figure, runs: Runs, folder: Path) -> Path:
    """Draw one figure to an SVG file in `folder`."""
    with drawing() as pyplot:
        return save_svg(_KINDS[figure.kind](pyplot, runs), folder / f"{figure.name.replace(':', '-')}.svg")


@contextlib.contextmanager
def drawing(**style: Any) -> Iterator[Any]:
    """Yield `matplotlib.pyplot`, set to our style without a window."""
    require("matplotlib", "drawing").use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context(STYLE | style):
        try:
            yield pyplot
        finally:
            pyplot.close()


def save_svg(picture: Any, path: Path) -> Path:
    """Write a matplotlib figure, without the date: the same figure gives the same file."""
    make_folder(path.parent)
    drawn = io.BytesIO()
    picture.savefig(drawn, format="svg", metadata={"Date": None})
    write_atomically(path, drawn.getbuffer())
    return path


def _circle(pyplot: Any, runs: Runs) -> Any:
    """Above, the density in the plane and the mean of G2 over seeds; below, the density of the angles.

    Densities are of the first seed: encoders differ by a rotation, so several together would look more uniform.
    """
    columns, rows = min(4, len(runs)), -(-len(runs) // 4)
    size: Any = {"figsize": (2 * columns, 3.6 * rows), "height_ratios": (2.2, 1) * rows, "squeeze": False}
    picture, axes = pyplot.subplots(2 * rows, columns, sharey="row", **size)
    for axis in axes.flat:
        axis.set_axis_off()
    for place, (title, found) in enumerate(runs.items()):
        row, column = divmod(place, columns)
        above, below = axes[2 * row][column], axes[2 * row + 1][column]
        above.set_title(title.replace(", not", ",\nnot").replace(", all", ",\nall"))
        shown = [run for run in found if run.angles is not None]
        if not shown:
            above.text(0.5, 0.5, "diverged" if found else "not run yet", ha="center", transform=above.transAxes)
            continue
        above.set_axis_on()
        below.set_axis_on()
        counts = torch.tensor(shown[0].angles)
        _plane(above, counts, shown)
        _angles(below, counts)
        below.set_ylim(0, TOP)
        if column == 0:
            below.set_ylabel("density")
    return picture


def _plane(axis: Any, counts: Tensor, shown: Sequence[Result]) -> None:
    uniformity = fmean(run.evaluation["sphere"].get("uniformity", math.nan) for run in shown)
    axis.text(0, 0, f"G2 {uniformity:z.2f}\n(n = {len(shown)})".replace("-", "−"), ha="center", va="center")
    density, edges = plane_density(counts, torch.linspace(-1.5, 1.5, 121)), (-1.5, 1.5, -1.5, 1.5)
    axis.imshow(density.numpy(), origin="lower", extent=edges, cmap="Blues", vmin=0)
    axis.set(xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    axis.grid(False)


def _angles(axis: Any, counts: Tensor) -> None:
    at = torch.linspace(-math.pi, math.pi, 361)
    density = von_mises_density(counts, at)
    axis.fill_between(at, density, color=COLOURS[0], alpha=0.35)
    axis.plot(at, density, color=COLOURS[0], lw=1)
    axis.axhline(1 / (2 * math.pi), color="0.3", lw=0.8, ls="--")  # uniform
    axis.set(xlim=(-math.pi, math.pi), xlabel="angle, radians")
    axis.set_xticks((-math.pi, 0, math.pi), ("−π", "0", "π"))
    if (peak := density.max()) > TOP:
        axis.text(at[density.argmax()] + 0.5, 0.95 * TOP, f"↑ {peak:.1f}", va="top")


def _mean(found: Sequence[Result], value: Callable[[dict[str, float]], float]) -> tuple[list[float], list[float]]:
    """Epochs that all histories have, and the mean of a value over seeds at each.

    Histories may differ in their epochs, since how often a run is measured is not part of its hash.
    """
    curves = [{line["epoch"]: value(line) for line in run.history} for run in found]
    epochs = [epoch for epoch in curves[0] if all(epoch in curve for curve in curves)]
    return epochs, [fmean(curve[epoch] for curve in curves) for epoch in epochs]


def _lines(axis: Any, runs: Runs, value: Callable[[dict[str, float]], float]) -> None:
    for (title, found), colour, dash in zip(runs.items(), COLOURS, DASHES, strict=False):
        kept = [run for run in found if run.diverged is None and run.history]
        lost = sum(run.diverged is not None for run in found)
        count = f"n = {len(kept)}" + (f", {lost} diverged" if lost else "")
        axis.plot(*(_mean(kept, value) if kept else ([], [])), label=f"{title} ({count})", color=colour, ls=dash)
    axis.set_xlabel("epoch")


def _blocks(pyplot: Any, runs: Runs) -> Any:
    picture, axes = pyplot.subplots(1, 4, figsize=(10, 2.4))
    for axis, stage in zip(axes, STAGES, strict=True):
        _lines(axis, runs, lambda line, stage=stage: line[f"energy/{stage}"])  # type: ignore[misc]
        axis.set_title(stage)
    axes[0].set_ylabel("mean pair energy (a2)")
    _legend(picture, axes[0])
    return picture


def _dynamics(pyplot: Any, runs: Runs) -> Any:
    picture, (left, right) = pyplot.subplots(1, 2, figsize=(6.6, 2.6))
    _lines(left, runs, lambda line: line["uniformity_of_features"])
    left.set(title="uniformity G2 of features", ylabel="lower: more even")
    weights = "energy_of_weights/"
    _lines(right, runs, lambda line: sum(value for name, value in line.items() if name.startswith(weights)))
    right.set(title="energy of all weights", ylabel="sum over layers (a2)")
    _legend(picture, left)
    return picture


def _curve(pyplot: Any, runs: Runs) -> Any:
    picture, axis = pyplot.subplots(figsize=(4.2, 2.8))
    _lines(axis, runs, lambda line: line["knn"])
    axis.set(ylabel="k-NN accuracy, %", title="k-NN during training")
    axis.legend(frameon=False)
    return picture


def _legend(picture: Any, axis: Any) -> None:
    """Put one legend above all panels."""
    lines, names = axis.get_legend_handles_labels()
    picture.legend(lines, names, loc="outside upper center", ncols=len(names), frameon=False)


def _batch(pyplot: Any, runs: Runs) -> Any:
    """The published changes, and ours by both readings of the learning rate, on one scale."""
    published = {title: row.published["top-1"] for title, row in _batch_rows().items()}
    ours = {title: fmean(tops) for title, found in runs.items() if (tops := _tops(found))}
    picture, axes = pyplot.subplots(1, 3, figsize=(7.2, 2.8), sharey=True)
    for axis, title, of, rate in (
        (axes[0], "published", published, BY_UPDATE),
        (axes[1], f"ours, learning rate\n{BY_UPDATE}", ours, BY_UPDATE),
        (axes[2], f"ours, learning rate\n{BY_BATCH}", ours, BY_BATCH),
    ):
        _changes(axis, of, rate)
        axis.set(title=title, xlabel="images at once")
    axes[0].set_ylabel("change of accuracy, points")
    _legend(picture, axes[0])
    return picture


def _batch_rows() -> dict[str, Row]:
    return {", ".join(row.labels): row for row in TABLES["tab:batch"].rows}


def _tops(found: Sequence[Result]) -> list[float]:
    return [run.evaluation["linear"]["top1"] for run in found if run.diverged is None]


def _changes(axis: Any, tops: dict[str, float], rate: str) -> None:
    """Plot the difference of each mean accuracy to that of the whole batch, by method."""
    sizes: dict[str, dict[str, float]] = {}
    for title, row in _batch_rows().items():
        method, batch, scaled = row.labels
        if title in tops and (batch == "1024" or scaled == rate):
            sizes.setdefault(method, {})[batch] = tops[title]
    shown = {method: of for method, of in sizes.items() if len(of) > 1 and "1024" in of}
    if not shown:
        axis.text(0.5, 0.5, "not run yet", ha="center", transform=axis.transAxes)
        axis.tick_params(bottom=False, labelbottom=False)
    for (method, by_batch), colour, dash, marker in zip(shown.items(), COLOURS, DASHES, "os^D", strict=False):
        gaps = [top - by_batch["1024"] for top in by_batch.values()]
        axis.plot([*by_batch], gaps, label=method, color=colour, ls=dash, marker=marker, ms=4)


_KINDS: dict[str, Callable[[Any, Runs], Any]] = {
    "circle": _circle,
    "blocks": _blocks,
    "dynamics": _dynamics,
    "curve": _curve,
    "batch": _batch,
}
