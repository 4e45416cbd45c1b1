"""hypersphere neighbours: the images that are most like others."""

import dataclasses
from pathlib import Path

from hypersphere.cli.options import parse, take_words
from hypersphere.errors import UserError


@dataclasses.dataclass(frozen=True)
class NeighboursOptions:
    # How many to show of each query.
    count: int = 10
    # Write a page with the pictures as well.
    page: Path | None = None
    # Where the run or the exported encoder lies that made FILE (None: where it was then).
    encoder: Path | None = None
    # auto: the GPU if there is one.
    device: str = "auto"


def neighbours(words: list[str]) -> None:
    places = take_words(words, NeighboursOptions)
    about = "Print the images in FILE, which embed wrote, with the highest cosine with each QUERY, an image."
    prog = "hypersphere neighbours FILE QUERY …"
    options = parse(NeighboursOptions, words, prog, about, NeighboursOptions())
    if len(places) < 2:
        raise UserError("say where to look, and for what: hypersphere neighbours FILE QUERY …")
    from hypersphere.inference.neighbours import neighbours as nearest
    from hypersphere.report.gallery import write_gallery
    from hypersphere.util.files import check_file
    from hypersphere.util.text import printable

    if options.page is not None:
        check_file(options.page, "page")
    file, *queries = places
    found = nearest(file, queries, count=options.count, encoder=options.encoder, device=options.device)
    for one in found:
        print(f"{printable(one.query)}:")
        for path, cosine in one.neighbours:
            print(f"  {cosine:.4f}  {printable(path)}")
    if options.page is not None:
        write_gallery(options.page, found, file)
        print(f"written to {options.page}")
