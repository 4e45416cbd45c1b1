"""A map of the embeddings: each held-out image a mark by its class; page.js shows the one that is pointed at."""

import json
from collections.abc import Sequence

import torch
from torch import Tensor

from hypersphere.report.chart import COLOURS
from hypersphere.report.markup import Markup, element, joined
from hypersphere.report.portrait import Seen
from hypersphere.report.sheet import ROW

SIDE, REACH = 400, 188  # of the drawing; of the points from its middle
MARKS = {  # shapes around 0, 0: more than one, so that classes are told apart in grey as well
    "circle": "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
    "square": "M-2.7-2.7h5.4v5.4h-5.4z",
    "triangle": "M0-3.6L3.4 2.5H-3.4z",
    "cross": "M-3-1h2v-2h2v2h2v2h-2v2h-2v-2h-2z",
    "diamond": "M0-3.8L3.2 0L0 3.8L-3.2 0z",
    "wedge": "M0 3.6L3.4-2.5H-3.4z",
}
NAMED = 20  # classes; the marks of more are not told apart


def embedding(features: Tensor) -> Tensor:
    """N × 2 within −1 … 1 by t-SNE, always the same for the same features."""
    from sklearn.manifold import TSNE

    points = features.double()
    if len(points) < 4 or (points - points[0]).abs().max() < 1e-6:  # too few, or all in one place: nothing to spread
        return torch.zeros(len(points), 2)
    perplexity = min(30.0, (len(points) - 1) / 3)
    placed = torch.from_numpy(TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(points.numpy()))
    placed = placed - (placed.amax(0) + placed.amin(0)) / 2
    return placed / placed.abs().max()


def shapes() -> Markup:
    """What the marks of all maps refer to."""
    drawn = (element("path", id=f"mark-{name}", d=path) for name, path in MARKS.items())
    return element("svg", element("defs", *drawn), width=0, height=0, aria_hidden="true", class_="shapes")


def _mark(c: int, x: float, y: float, **attributes: object) -> Markup:
    shape, hollow = list(MARKS)[c % len(MARKS)], " hollow" * (c // COLOURS % 2)
    style = {"class_": f"colour-{c % COLOURS}{hollow}", "data_class": c}
    return element("use", href=f"#mark-{shape}", x=f"{x:.1f}", y=f"{y:.1f}", **style, **attributes)


def map_of(label: str, seen: Seen, sheet: str) -> Markup:
    images = seen.sample.images
    places = (SIDE / 2 + REACH * embedding(seen.features)).tolist()
    marks = [
        _mark(c, x, y, data_image=index)
        for index, ((x, y), c) in enumerate(zip(places, images.labels.tolist(), strict=True))
    ]
    told = f"{label}: map of {len(images)} images; arrow keys go from one to the next"
    drawing = element("svg", *marks, viewBox=f"0 0 {SIDE} {SIDE}", role="application", tabindex=0, aria_label=told)
    card = joined(element("span", class_=f"tile {sheet}"), element("span", class_="name"))
    return element(
        "figure",
        element("div", drawing, element("div", card, class_="card", aria_live="polite", hidden=""), class_="ground"),
        element("figcaption", element("strong", label)),
        _classes(images.classes),
        class_="map",
        data_classes=json.dumps(images.classes),
        data_row=ROW,
    )


def _classes(classes: Sequence[str]) -> Markup:
    if not classes:
        return element("p", "The images have no labels.")
    if len(classes) > NAMED:
        return element("p", f"{len(classes)} classes share the marks: point at one to read its class.")
    entries = []
    for c, name in enumerate(classes):
        key = element("svg", _mark(c, 6, 6), viewBox="0 0 12 12", class_="mark", aria_hidden="true")
        entries.append(element("li", key, " ", name, data_class=c))
    return element("ul", *entries, class_="legend")
