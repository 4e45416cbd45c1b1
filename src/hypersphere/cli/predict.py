"""hypersphere predict: classify image files."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from hypersphere.cli.parsing import missing_argument, parse

LISTED = 10  # classes in the summary


@dataclasses.dataclass(frozen=True)
class PredictOptions:
    """Classify images: write a table with the columns file, class and probability, and print a summary."""

    classifier: Annotated[str, Positional, arg(metavar="CLASSIFIER")]
    """Folder that classify wrote."""
    images: Annotated[tuple[str, ...], Positional, arg(metavar="IMAGES …")]
    """Image files, folders of images and tar files."""
    out: Annotated[Path | None, arg(aliases=["-o"])] = None
    """File to write, .csv or .parquet. None: print the table, and the summary to standard error."""
    top: int = 1
    """Classes to list for each image, most probable first."""
    all: bool = False
    """Add a column with the probability of every class."""
    workers: int | None = None
    """Processes that decode image files. None: one per core if there is a GPU, else none."""
    device: str = "auto"
    """Device, such as cpu or cuda:1. auto: the GPU if there is one."""
    trust: bool = False
    """Import and run code that the classifier names. What you made does not need it."""


def run(words: Sequence[str]) -> None:
    options = parse("predict", PredictOptions, words)
    if not options.images:
        raise missing_argument("predict", "IMAGES")
    from hypersphere.data.unreadable import replace_unreadable, report_unreadable
    from hypersphere.inference.loading import load
    from hypersphere.inference.predicting import UNSURE, check_order, write_predictions
    from hypersphere.inference.prediction_files import open_table
    from hypersphere.util.console import pluralize
    from hypersphere.util.text import printable

    check_order(options.classifier, options.images)
    with open_table(options.out) as table:
        loaded = load(options.classifier, options.device, trust=options.trust)
        top, workers = options.top, options.workers
        found = write_predictions(
            loaded, options.images, table, top=top, every=options.all, workers=workers, progress=True
        )
    to = sys.stderr if options.out is None else sys.stdout
    of = "" if options.out is None else f"{options.out}: "
    print(
        f"{of}{pluralize(found.counts.total(), 'image')}, {found.unsure:,} with a probability below {UNSURE}", file=to
    )
    for name, count in found.counts.most_common(LISTED):
        print(f"  {count:>7,}  {printable(name)}", file=to)
    if (others := found.counts.total() - sum(count for _, count in found.counts.most_common(LISTED))) > 0:
        print(f"  {others:>7,}  of {len(found.counts) - LISTED} other classes", file=to)
    if options.out is None:
        report_unreadable(found.unreadable)
    else:
        replace_unreadable(found.unreadable, options.out.with_suffix(".unreadable.tsv"))
