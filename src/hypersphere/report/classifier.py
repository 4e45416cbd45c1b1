"""The page of a classifier: its confusion matrix, its calibration, and its most confident mistakes."""

from pathlib import Path

import torch
from markupsafe import Markup
from torch import Tensor

from hypersphere.inference.classifying import Classified, Mistake
from hypersphere.report.chart import BOTTOM, LEFT, RIGHT, TOP, Scale, polyline
from hypersphere.report.contact_sheet import as_picture
from hypersphere.report.gallery import SIDE, link_to, lone_tile
from hypersphere.report.templating import number, render
from hypersphere.util.files import write_atomically
from hypersphere.util.text import printable

MISTAKES = 24  # shown at most
MATRIX = 30  # classes up to which the whole matrix is shown
PAIRS = 20  # confused pairs that are listed


def write_classifier_page(path: Path, found: Classified) -> None:
    """Write the page of a classifier.

    Args:
        path: The page.
        found: What `classify` returned.

    Raises:
        UserError: If the page cannot be written.
    """
    write_atomically(path, classifier_page(found).encode(errors="replace"))  # a name may not be valid text


def classifier_page(found: Classified) -> str:
    """The page as HTML."""
    low, high = found.interval
    before, after = 100 * found.reliability_before.error, 100 * found.reliability.error
    summary = [
        ("top-1 accuracy, %", f"{found.accuracy.top1:.2f}"),
        ("95 % interval", f"{low:.2f} to {high:.2f}"),
        ("top-5 accuracy, %", f"{found.accuracy.top5:.2f}"),
        ("calibration error, points", f"{after:.2f}"),
        ("before calibration, points", f"{before:.2f}"),
        ("held-out images", f"{len(found.truth):,}"),
        ("training images", f"{found.trained_on:,}"),
        ("classes", f"{len(found.classes):,}"),
    ]
    names = [printable(name) for name in found.classes]
    return render(
        "classifier.html",
        title=f"Classifier in {printable(found.folder)}",
        summary=summary,
        uncalibrated=found.uncalibrated,
        matrix=_matrix(found.confusion, names) if len(names) <= MATRIX else [],
        names=names,
        pairs=confused_pairs(found.confusion, names)[:PAIRS],
        calibration=_calibration(found),
        mistakes=_pictures(found),
        wrong=int((found.predicted != found.truth).sum()),
        side=SIDE,
    )


def confused_pairs(confusion: Tensor, names: list[str]) -> list[tuple[str, str, int, int]]:
    """(true class, predicted class, images, images of the true class) of each confusion, most frequent first."""
    wrong = confusion - confusion.diag().diag()
    order = wrong.flatten().argsort(descending=True, stable=True)
    places = [divmod(int(place), len(names)) for place in order[: int((wrong > 0).sum())]]
    return [(names[t], names[p], int(wrong[t, p]), int(confusion[t].sum())) for t, p in places]


def _matrix(confusion: Tensor, names: list[str]) -> list[tuple[str, list[tuple[int, str]]]]:
    """Rows of (class, cells of (images, shade from 0 to 1))."""
    shares = confusion / confusion.sum(dim=1, keepdim=True).clamp(min=1)
    rows = zip(names, confusion.tolist(), shares.tolist(), strict=True)
    return [(name, [(n, f"{share:.3f}") for n, share in zip(counts, row, strict=True)]) for name, counts, row in rows]


def _calibration(found: Classified) -> Markup:
    """Accuracy by confidence, before and after calibration, beside the diagonal of perfect calibration."""
    x, y = Scale(0, 1, LEFT, RIGHT), Scale(0, 1, BOTTOM, TOP)
    lines = [
        (label, place, list(zip(one.confidence.tolist(), one.accuracy.tolist(), one.images.tolist(), strict=True)))
        for place, (label, one) in enumerate(
            (("calibrated", found.reliability), ("before calibration", found.reliability_before))
        )
    ]
    diagonal = polyline([(0, 0), (1, 1)], x, y)
    curves = [(label, place, polyline([(c, a) for c, a, _ in points], x, y), points) for label, place, points in lines]
    return render("calibration.html", x=x, y=y, curves=curves, diagonal=diagonal)


def _pictures(found: Classified) -> list[dict[str, str]]:
    """The most confident mistakes, with their images."""
    mistakes = found.mistakes(MISTAKES)
    if not mistakes:
        return []
    chosen = found.images[torch.tensor([mistake.sample for mistake in mistakes]).to(found.images.labels.device)]
    pixels = torch.cat(list(chosen.squares(SIDE, 0))).permute(0, 2, 3, 1)
    pictures = []
    for mistake, picture in zip(mistakes, map(as_picture, pixels), strict=True):
        picture.thumbnail((SIDE, SIDE))
        rendering = "; image-rendering: pixelated" if max(picture.size) < SIDE / 2 else ""
        pictures.append(_caption(mistake) | {"style": lone_tile(picture, SIDE) + rendering})
    return pictures


def _caption(mistake: Mistake) -> dict[str, str]:
    return {
        "name": printable(mistake.name),
        "link": link_to(mistake.name),
        "truth": printable(mistake.truth),
        "predicted": printable(mistake.predicted),
        "probability": number(mistake.probability, 3),
    }
