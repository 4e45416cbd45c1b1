"""A map of the embeddings: each image is a mark of its class; page.js shows the image that is pointed at."""

import json

import torch
from markupsafe import Markup
from torch import Tensor

from hypersphere.data.class_names import class_names
from hypersphere.report.contact_sheet import ROW
from hypersphere.report.run_data import Seen
from hypersphere.report.templating import render

CENTRE, REACH = 200, 188  # of the drawing; distance of the points from its centre
MOST_CLASSES = 20  # in the legend; the marks of more classes look alike


def embedding(features: Tensor) -> Tensor:
    """Places of features on the map, by t-SNE; the same for the same features.

    Args:
        features: Unit features of shape (N, D).

    Returns:
        Points in [−1, 1]² of shape (N, 2).
    """
    from sklearn.manifold import TSNE

    points = features.double()
    if len(points) < 4 or (points - points[0]).abs().max() < 1e-6:  # too few, or all in one place
        return torch.zeros(len(points), 2)
    perplexity = min(30.0, (len(points) - 1) / 3)
    placed = torch.from_numpy(TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(points.numpy()))
    placed = placed - (placed.amax(0) + placed.amin(0)) / 2
    return placed / placed.abs().max()


def map_of(label: str, seen: Seen, sheet: str) -> Markup:
    """The map of one run.

    Args:
        label: Name of the run.
        seen: Images and their features.
        sheet: CSS class of the sheet that holds the images.
    """
    images = seen.sample.images
    places = (CENTRE + REACH * embedding(seen.features)).tolist()
    points = [(round(x, 1), round(y, 1), c) for (x, y), c in zip(places, images.labels.tolist(), strict=True)]
    classes = class_names(images.classes)
    names = {"classes": classes, "class_names": json.dumps(classes), "most_classes": MOST_CLASSES}
    return render("map.html", label=label, points=points, sheet=sheet, row_length=ROW, **names)
