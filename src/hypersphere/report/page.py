"""One HTML page of one or several runs that needs nothing else: no network, no server."""

import string
from collections.abc import Callable, Sequence
from pathlib import Path

from hypersphere.config import Config
from hypersphere.report.atlas import map_of, shapes
from hypersphere.report.chart import Line, legend, panel
from hypersphere.report.density import angle_density, circle, on_circle
from hypersphere.report.markup import Markup, element, joined, resource
from hypersphere.report.neighbours import neighbours
from hypersphere.report.portrait import Portrait, Sample, Seen, labelled, portray
from hypersphere.report.sheet import sheet_style
from hypersphere.report.tables import configs, missing, summary
from hypersphere.runs.machine import pick_device
from hypersphere.runs.run import load_config
from hypersphere.util.files import check_file, write_atomically
from hypersphere.util.progress import progress_bar

SUMMARY = """k-NN accuracy and uniformity are the last of those measured while training; columns after them are from
evaluation.json: accuracy in %, and where it is a mean over draws of the labelled images, ± half its 95 % interval."""
DYNAMICS = """Measured while training. Accuracy: a weighted vote of the nearest training images, on validation images; a
run that holds out the test set has learnt from those as well, without labels. Uniformity: of their features, log of the
mean Gaussian potential of pairs (G2, t = 2); lower is more even. The loss is that of single updates."""
ENERGIES = """Mean over pairs of the inverse squared angle, of what each block puts out for a fixed batch of the images
measured on (averaged over the image); lower is more even. Of the weights: that of the neurons of a layer, summed over
the layers of each part, whether or not the run regularizes it. Of runs that regularize weights: how strongly, as the
norm of the regularizer's gradient over that of the loss, for each network."""
FAMILIES = (  # of measurements, and what their values are
    ("energy/", "Block: ", "mean pair energy, rad⁻²"),
    ("energy_of_weights/", "Weights: ", "pair energy summed over layers, rad⁻²"),
    ("gradient_ratio/", "Gradient: ", "norm of the regularizer's over that of the loss"),
)
CIRCLE = """Where the features of %s images point. Above, a Gaussian kernel density in the plane (bandwidth 0.1),
each shaded up to its own maximum; below, a von Mises–Fisher kernel density of the angle (κ = 50), all on one scale. The
dashed line is the even density."""
NEIGHBOURS = """Left, the query; then the %s images of the highest cosine with it, nearest first. A whole border
and a tick: of the same class as the query; a dashed border and a cross: of another."""
MAP = """The %s images, placed by t-SNE of their features (seeded): what is near is alike, distances between groups
mean little. Point at a mark to see its image, or use the arrow keys; point at a class to see it alone."""


def write_report(
    paths: Sequence[str | Path], out: Path, device: str = "auto", root: Path | None = None, *, progress: bool = False
) -> None:
    """A page of these runs; one that is named twice is shown once."""
    check_file(out, "out")
    pick_device(device)  # a mistake in it is none of the runs'
    unique = {Path(path).resolve(): Path(path) for path in paths}
    for path in unique.values():
        load_config(path)  # what is no run is told before any is looked at
    runs: list[Portrait] = []
    with progress_bar("report", len(unique), show=progress) as bar:
        for path in unique.values():
            runs.append(portray(path, device, root))
            bar.update(len(runs))
    write_atomically(out, page(labelled(runs)).encode(errors="replace"))  # a path may be no text


def page(runs: Sequence[Portrait]) -> str:
    samples = list(dict.fromkeys(run.seen.sample for run in runs if run.seen))
    sheets = {sample: f"sheet-{place}" for place, sample in enumerate(samples)}
    kind = " or ".join(sorted({"held-out" if sample.held_out else "training" for sample in samples}))
    sections = (
        _section("Summary", SUMMARY, summary(runs), missing(runs)),
        _section("Accuracy, uniformity and loss", DYNAMICS, *_dynamics(runs)),
        _section("Energy by layer", ENERGIES, *_energies(runs)),
        _section("On the circle", CIRCLE % kind, *_circles(runs)),
        _section("Nearest neighbours", NEIGHBOURS % kind, *_pictures(runs, sheets, neighbours)),
        _section("Map of the embeddings", MAP % kind, *_pictures(runs, sheets, map_of)),
        _section("Configs", "", *configs(runs)),
    )
    names = ", ".join(run.label for run in runs) if len(runs) <= 4 else f"{len(runs)} runs"
    return string.Template(resource("page.html")).substitute(
        title=joined(f"Report of {names}"),
        style=resource("page.css") + "".join(sheet_style(sample.images.pixels, sheets[sample]) for sample in samples),
        body=joined(element("h1", f"Report of {names}"), shapes(), *sections),
        script=resource("page.js"),
    )


def _section(title: str, about: str, *parts: Markup) -> Markup:
    if not any(parts):
        parts = (element("p", "None of these runs has this yet: the summary says why.", class_="absent"),)
        about = ""
    explained = element("p", about, class_="about") if about else ""
    return element("section", element("h2", title), explained, *parts)


def _dynamics(runs: Sequence[Portrait]) -> Sequence[Markup]:
    panels = [
        _panel("k-NN accuracy", "% of validation images", runs, "knn"),
        _panel("Uniformity of features", "G2; lower is more even", runs, "uniformity_of_features"),
        _panel("Training loss", "all terms", runs, "loss"),
    ]
    if any(_regularized(run.config) for run in runs):
        panels.append(_panel("Loss between the views", "without regularizers", runs, _own_loss))
    return _panels(runs, panels)


def _regularized(config: Config) -> bool:
    weights = ("uniformity", "energy", "orthogonality", "regularizer", "variance_covariance", "koleo", "sigreg")
    return any(getattr(config, name) for name in weights)


def _own_loss(run: Portrait) -> str:
    """The name of the method's own term in the log, which `Method.step` puts first."""
    return next((list(line)[1] for line in run.metrics if "loss" in line), "loss")


def _energies(runs: Sequence[Portrait]) -> Sequence[Markup]:
    names = dict.fromkeys(name for run in runs for name in run.names)
    ordered = sorted(names, key=lambda name: name.endswith("/output"))  # last, after blocks that only others have
    panels = [
        _panel(what + name.removeprefix(kind), unit, runs, name)
        for kind, what, unit in FAMILIES
        for name in ordered
        if name.startswith(kind)
    ]
    return _panels(runs, panels)


def _panel(title: str, unit: str, runs: Sequence[Portrait], name: str | Callable[[Portrait], str]) -> Markup:
    """The named curve of every run that has it; nothing if none has."""
    curves = [run.curve(name if isinstance(name, str) else name(run)) for run in runs]
    lines = [
        Line(run.label, place, curve) for place, (run, curve) in enumerate(zip(runs, curves, strict=True)) if curve
    ]
    return panel(title, unit, lines) if lines else Markup()


def _panels(runs: Sequence[Portrait], panels: Sequence[Markup]) -> Sequence[Markup]:
    if not any(panels):
        return ()
    return legend([run.label for run in runs]), element("div", *panels, class_="panels")


def _circles(runs: Sequence[Portrait]) -> Sequence[Markup]:
    placed = [(run.label, *on_circle(run.seen.features)) for run in runs if run.seen]
    if not placed:
        return ()
    highest = max(float(angle_density(points).max()) for _, points, _ in placed)
    drawn = (circle(label, points, meaning, highest) for label, points, meaning in placed)
    return element("div", *drawn, class_="panels"), _unseen(runs)


def _pictures(
    runs: Sequence[Portrait], sheets: dict[Sample, str], draw: Callable[[str, Seen, str], Markup]
) -> Sequence[Markup]:
    """What is drawn of each run whose encoder could be asked."""
    drawn = [draw(run.label, run.seen, sheets[run.seen.sample]) for run in runs if run.seen]
    return (element("div", *drawn, class_="panels"), _unseen(runs)) if drawn else ()


def _unseen(runs: Sequence[Portrait]) -> Markup:
    names = ", ".join(run.label for run in runs if not run.seen)
    return element("p", f"Not shown: {names}. The summary says why.", class_="absent") if names else Markup()
