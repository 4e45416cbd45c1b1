"""Query images with their nearest neighbours among the held-out ones, by cosine."""

import math

import torch
from torch import Tensor

from hypersphere.report.markup import Markup, element
from hypersphere.report.portrait import Seen
from hypersphere.report.sheet import tile

QUERIES, NEIGHBOURS = 8, 6


def nearest(seen: Seen) -> list[tuple[int, list[int]]]:
    """The first image of each of some classes, and those of the highest cosine with it."""
    queries = _queries(seen.sample.images.labels)
    cosines = seen.features[queries] @ seen.features.T
    cosines[range(len(queries)), queries] = -math.inf
    found = cosines.topk(min(NEIGHBOURS, len(seen.features) - 1), dim=1).indices
    return list(zip(queries, found.tolist(), strict=True))


def _queries(labels: Tensor) -> list[int]:
    """Where nothing has a label, evenly from all."""
    classes = labels[labels >= 0].unique()
    firsts = [int((labels == c).nonzero()[0]) for c in classes] or list(range(len(labels)))
    return [firsts[place] for place in torch.linspace(0, len(firsts) - 1, min(QUERIES, len(firsts))).long()]


def neighbours(label: str, seen: Seen, sheet: str) -> Markup:
    """A row for each query, itself first."""
    labels = seen.sample.images.labels.tolist()
    found = nearest(seen)
    same = [labels[query] == labels[one] for query, others in found for one in others if labels[query] >= 0]
    rows = [element("div", *_row(query, others, seen, sheet), class_="row") for query, others in found]
    told = f": {sum(same)} of {len(same)} are of the query's class" if same else ": the classes are not known"
    return element("figure", *rows, element("figcaption", element("strong", label), told), class_="neighbours")


def _row(query: int, others: list[int], seen: Seen, sheet: str) -> list[Markup]:
    images = seen.sample.images
    labels = images.labels.tolist()
    cells = [tile(sheet, query, f"query: {images.classes[labels[query]] if labels[query] >= 0 else query}", "query")]
    for place, one in enumerate(others, 1):
        alike = labels[one] == labels[query]
        if labels[one] < 0 or labels[query] < 0:
            cells.append(tile(sheet, one, f"neighbour {place}", "unknown"))
        else:
            told = f"{images.classes[labels[one]]}, {'the same class' if alike else 'another class'}"
            cells.append(tile(sheet, one, told, "same" if alike else "other"))
    return cells
