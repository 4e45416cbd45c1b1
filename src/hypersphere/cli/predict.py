"""hypersphere predict: classify image files."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated

from tyro.conf import Positional, arg

from hypersphere.cli.options import missing, parse

LISTED = 10  # classes in the summary


@dataclasses.dataclass(frozen=True)
class PredictOptions:
    """Classify images: write a CSV table with the columns file, class and probability, and print a summary."""

    classifier: Annotated[str, Positional, arg(metavar="CLASSIFIER")]
    """Folder that classify wrote."""
    images: Annotated[tuple[str, ...], Positional, arg(metavar="IMAGES …")]
    """Image files, folders of images and tar files."""
    out: Annotated[Path | None, arg(aliases=["-o"])] = None
    """CSV file to write. None: print the table, and the summary to standard error."""
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
        raise missing("predict", "IMAGES")
    from hypersphere.data.unreadable import replace_unreadable, report_unreadable
    from hypersphere.inference.loading import load
    from hypersphere.inference.predicting import UNSURE, write_predictions
    from hypersphere.util.console import pluralize
    from hypersphere.util.text import printable

    with _table(options.out) as file:
        loaded = load(options.classifier, options.device, trust=options.trust)
        top, workers = options.top, options.workers
        found = write_predictions(
            loaded, options.images, file, top=top, every=options.all, workers=workers, progress=True
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


@contextlib.contextmanager
def _table(out: Path | None) -> Iterator[IO[str]]:
    from hypersphere.util.files import check_file, put_in_place

    if out is None:
        yield sys.stdout
        return
    check_file(out, "out")
    with (
        put_in_place(out, alone=True) as scratch,
        open(scratch, "w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        yield file
