"""Query images with their nearest neighbours among the other images, by cosine."""

import math
from typing import NamedTuple

import torch
from markupsafe import Markup
from torch import Tensor

from hypersphere.data.class_names import class_names
from hypersphere.report.contact_sheet import tile_style
from hypersphere.report.run_data import Seen
from hypersphere.report.templating import render

QUERIES, NEIGHBOURS = 8, 6


class Tile(NamedTuple):
    """One image of a row: its CSS class, its place on the sheet, and its description."""

    kind: str
    place: str
    label: str


def nearest(seen: Seen) -> list[tuple[int, list[int]]]:
    """Indices of some query images, one of each class, and of the images with the highest cosine to each."""
    queries = _queries(seen.sample.images.labels)
    cosines = seen.features[queries] @ seen.features.T
    cosines[range(len(queries)), queries] = -math.inf
    found = cosines.topk(min(NEIGHBOURS, len(seen.features) - 1), dim=1).indices
    return list(zip(queries, found.tolist(), strict=True))


def _queries(labels: Tensor) -> list[int]:
    """The first image of each of some classes; without labels, images evenly from all."""
    classes = labels[labels >= 0].unique()
    firsts = [int((labels == c).nonzero()[0]) for c in classes] or list(range(len(labels)))
    return [firsts[place] for place in torch.linspace(0, len(firsts) - 1, min(QUERIES, len(firsts))).long()]


def neighbours(label: str, seen: Seen, sheet: str) -> Markup:
    """A row for each query, which comes first.

    Args:
        label: Name of the run.
        seen: Images and their features.
        sheet: CSS class of the sheet that holds the images.
    """
    rows = [[_query(query, seen), *(_neighbour(one, query, seen) for one in others)] for query, others in nearest(seen)]
    kinds = [tile.kind for row in rows for tile in row]
    same, known = kinds.count("same"), kinds.count("same") + kinds.count("other")
    caption = f"{same} of {known} are of the query's class" if known else "the classes are not known"
    return render("neighbours.html", label=label, rows=rows, sheet=sheet, caption=caption)


def _query(image: int, seen: Seen) -> Tile:
    images = seen.sample.images
    label = int(images.labels[image])
    name = class_names(images.classes)[label] if label >= 0 else image
    return Tile("query", tile_style(image), f"query: {name}")


def _neighbour(image: int, query: int, seen: Seen) -> Tile:
    images = seen.sample.images
    label, of_query = int(images.labels[image]), int(images.labels[query])
    if label < 0 or of_query < 0:
        return Tile("unknown", tile_style(image), "class not known")
    kind = "same" if label == of_query else "other"
    return Tile(kind, tile_style(image), f"{class_names(images.classes)[label]}, {kind} class")
