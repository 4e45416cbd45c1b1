"""One HTML page about one or several runs, which needs neither network nor other files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from hypersphere.config import Config
from hypersphere.report.chart import Line, legend, panel
from hypersphere.report.contact_sheet import sheet_style
from hypersphere.report.density import angle_density, circle, on_circle
from hypersphere.report.embedding_map import map_of
from hypersphere.report.neighbours import neighbours
from hypersphere.report.run_data import RunData, labelled, read_run_data
from hypersphere.report.tables import configs, summary
from hypersphere.report.templating import render
from hypersphere.report.verdict_of_run import verdict_of
from hypersphere.runs.machine import pick_device
from hypersphere.runs.run import read_config
from hypersphere.util.console import progress_bar
from hypersphere.util.files import check_file, write_atomically
from hypersphere.util.trust import trust as trust_path

FAMILIES = (  # prefixes of measurements, their titles and units
    ("energy/", "Block: ", "mean pair energy, rad⁻²"),
    ("energy_of_weights/", "Weights: ", "pair energy summed over layers, rad⁻²"),
    ("gradient_ratio/", "Gradient: ", "norm of the regularizer's over that of the loss"),
)


def write_report(
    paths: Sequence[str | Path],
    out: Path,
    device: str = "auto",
    root: Path | None = None,
    *,
    trust: bool = False,
    progress: bool = False,
) -> None:
    """Write one HTML page that compares runs.

    Args:
        paths: Folders of the runs; a folder that is named twice is shown once.
        out: The page.
        device: Device that computes the features.
        root: Folder of the data; None for the folder that each run was trained with.
        trust: Whether to import code and to read images that the runs name. Runs that you made do not need it.
        progress: Whether to show progress.

    Raises:
        UserError: If a folder is not a run, or the page cannot be written.
    """
    check_file(out, "out")
    pick_device(device)  # an error in it is not an error of a run
    unique = {Path(path).resolve(): Path(path) for path in paths}
    for path in unique.values():
        if trust:
            trust_path(path)
        read_config(path)  # reports a folder that is not a run before anything is computed
    runs: list[RunData] = []
    with progress_bar("report", len(unique), show=progress) as bar:
        for path in unique.values():
            runs.append(read_run_data(path, device, root))
            bar.update(len(runs))
    write_atomically(out, page(labelled(runs)).encode(errors="replace"))  # a path may not be valid text


def page(runs: Sequence[RunData]) -> str:
    """The page as HTML."""
    seen = [(run.label, run.seen) for run in runs if run.seen]
    samples = list(dict.fromkeys(found.sample for _, found in seen))
    sheets = {sample: f"sheet-{place}" for place, sample in enumerate(samples)}
    head, rows = summary(runs)
    options = configs(runs)
    same = (
        f"{len(options.same)} options are the same in all runs" if len(runs) > 1 else f"All {len(options.same)} options"
    )
    names = ", ".join(run.label for run in runs) if len(runs) <= 4 else f"{len(runs)} runs"
    return render(
        "report.html",
        title=f"Report of {names}",
        sheets=[sheet_style(sample.images.pixels, sheets[sample]) for sample in samples],
        kind=" or ".join(sorted({"held-out" if sample.held_out else "training" for sample in samples})),
        verdicts=[verdict_of(run) for run in runs if run.seen and len(run.seen.features) > 1],
        summary_head=head,
        summary_rows=rows,
        notes=[(run.label, note) for run in runs for note in run.missing],
        legend=legend([run.label for run in runs]),
        dynamics=_dynamics(runs),
        energies=_energies(runs),
        circles=_circles(runs),
        neighbours=[neighbours(label, found, sheets[found.sample]) for label, found in seen],
        maps=[map_of(label, found, sheets[found.sample]) for label, found in seen],
        unseen=", ".join(run.label for run in runs if not run.seen),
        config_head=options.head,
        differing=options.differing,
        same=options.same,
        same_title=same,
    )


def _dynamics(runs: Sequence[RunData]) -> list[Markup]:
    panels = [
        _panel("k-NN accuracy", "% of validation images", runs, "knn"),
        _panel("Uniformity of features", "G2; lower is more uniform", runs, "uniformity_of_features"),
    ]
    kinds: list[tuple[str, str, Any]] = [("Training loss", "all terms", "loss")]
    if any(_is_regularized(run.config) for run in runs):
        kinds.append(("Loss between the views", "without regularizers", _own_loss))
    methods = list(dict.fromkeys(run.config.method for run in runs))
    for title, unit, name in kinds:
        for method in methods:  # losses of different methods cannot be compared
            of = f" of {method.rpartition(':')[2]}" if len(methods) > 1 else ""
            panels.append(_panel(title + of, unit, runs, name, method))
    return [*filter(None, panels)]


def _is_regularized(config: Config) -> bool:
    weights = (
        "uniformity",
        "energy",
        "orthogonality",
        "regularizer",
        "variance_covariance",
        "koleo",
        "sigreg",
        "spherical_mmd",
    )
    return any(getattr(config, name) for name in weights)


def _own_loss(run: RunData) -> str:
    """Name of the method's own loss term, which `Method.step` logs first."""
    return next((list(line)[1] for line in run.metrics if "loss" in line), "loss")


def _energies(runs: Sequence[RunData]) -> list[Markup]:
    names = dict.fromkeys(name for run in runs for name in run.names)
    ordered = sorted(names, key=lambda name: name.endswith("/output"))  # last, also if another run has more blocks
    panels = (
        _panel(title + name.removeprefix(prefix), unit, runs, name)
        for prefix, title, unit in FAMILIES
        for name in ordered
        if name.startswith(prefix)
    )
    return [*filter(None, panels)]


def _panel(
    title: str, unit: str, runs: Sequence[RunData], name: str | Callable[[RunData], str], method: str | None = None
) -> Markup:
    """The curves of a measurement, of the runs (of a method) that have it; empty if none has."""
    curves = [run.curve(name if isinstance(name, str) else name(run)) for run in runs]
    lines = [
        Line(run.label, place, curve)
        for place, (run, curve) in enumerate(zip(runs, curves, strict=True))
        if curve and method in (None, run.config.method)
    ]
    return panel(title, unit, lines) if lines else Markup()


def _circles(runs: Sequence[RunData]) -> list[Markup]:
    placed = [(run.label, *on_circle(run.seen.features)) for run in runs if run.seen]
    highest = max((float(angle_density(points).max()) for _, points, _ in placed), default=0.0)
    return [circle(label, points, meaning, highest) for label, points, meaning in placed]
