"""Classify image files into a table, row by row, so that memory use stays constant."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypersphere.data.unreadable import none_readable
from hypersphere.data.worker_stream import Stream
from hypersphere.errors import UserError
from hypersphere.inference.embed_to_file import stream_of
from hypersphere.inference.head import Predictions
from hypersphere.inference.loading import Loaded
from hypersphere.inference.prediction_files import Table
from hypersphere.nn.weights import CARD
from hypersphere.runs.preprocess import AT_ONCE
from hypersphere.util.console import progress_bar
from hypersphere.util.run_files import is_run

UNSURE = 0.5  # predictions with a lower probability are counted


@dataclass
class Summary:
    """What `write_predictions` found.

    Attributes:
        counts: Number of images by predicted class.
        unsure: Images whose most probable class has a probability below `UNSURE`.
        unreadable: Skipped files and folders, with the reasons.
    """

    counts: Counter[str] = field(default_factory=Counter)
    unsure: int = 0
    unreadable: dict[Path | str, str] = field(default_factory=dict)


def check_order(classifier: str, images: Sequence[str]) -> None:
    """Refuse images before the classifier."""
    later = [place for place in images if (Path(place) / CARD).is_file()]
    if later and not is_run(classifier) and not (Path(classifier) / CARD).is_file():
        order = f"hypersphere predict {later[0]} {classifier}"
        raise UserError(f"{classifier} is not a classifier, but {later[0]} may be: it comes first, as in {order}")


def write_predictions(
    loaded: Loaded,
    images: Sequence[str | Path],
    table: Table,
    *,
    top: int = 1,
    every: bool = False,
    workers: int | None = None,
    progress: bool = False,
) -> Summary:
    """Write a table with the class of every image: columns file, class, probability.

    Args:
        loaded: A classifier.
        images: Image files, and images of any kind as in the option `data`.
        table: Table to write to, see `open_table`.
        top: Classes of each image, most probable first; others follow as class_2, probability_2, ….
        every: Whether to add a column with the probability of every class.
        workers: Processes that read images. None: chosen from the number of cores.
        progress: Whether to show progress.

    Returns:
        The number of images of each class, and the unreadable files.

    Raises:
        UserError: If there is no classifier, or none of the images can be read.
    """
    classes = loaded.classifier.classes
    if not 1 <= top <= len(classes):
        raise UserError(f"`top` must be from 1 to the number of classes, {len(classes)}, got {top}")
    stream, files = stream_of(loaded, [os.fspath(one) for one in images], workers)
    summary = Summary(unreadable=stream.unreadable)
    for names, found in _predicted(loaded, stream, progress):
        most = found.probabilities.topk(top, dim=1)
        columns: dict[str, Any] = {"file": names}
        for rank, (best, values) in enumerate(zip(most.indices.T.tolist(), most.values.T.tolist(), strict=True), 1):
            suffix = f"_{rank}" if rank > 1 else ""
            columns |= {f"class{suffix}": [classes[n] for n in best], f"probability{suffix}": values}
        if every:
            columns |= dict(zip([f"probability of {c}" for c in classes], found.probabilities.T.tolist(), strict=True))
        table.write(columns)
        summary.counts.update(columns["class"])
        summary.unsure += sum(value < UNSURE for value in columns["probability"])
    if not summary.counts:
        raise none_readable(len(files), stream.unreadable)
    return summary


def _predicted(loaded: Loaded, stream: Stream, progress: bool) -> Iterator[tuple[list[str], Predictions]]:
    with progress_bar("classifying", len(stream.reader), show=progress and len(stream.reader) > AT_ONCE) as bar:
        for pixels, sample in stream.every(AT_ONCE):
            names = [str(stream.reader.name(n)) for n in sample.tolist()]
            yield names, loaded.classifier.predict(loaded.encode_pixels(pixels))
            bar.update(int(sample[-1]) + 1)
