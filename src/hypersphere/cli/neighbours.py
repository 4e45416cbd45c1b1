"""hypersphere neighbours: find the images most similar to a query image."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from hypersphere.cli.next_step import print_next
from hypersphere.cli.options import parse


@dataclasses.dataclass(frozen=True)
class NeighboursOptions:
    """Print the images in FILE whose embeddings have the highest cosine with that of each QUERY."""

    file: Annotated[str, Positional, arg(metavar="FILE")]
    """File of embeddings that embed wrote."""
    query: Annotated[tuple[str, ...], Positional, arg(metavar="QUERY …")]
    """Image files to compare with."""
    count: int = 10
    """Neighbours to show for each query."""
    page: Path | None = None
    """Also write an HTML page with the images."""
    encoder: Path | None = None
    """Folder of the run or the exported encoder that made FILE, if it has moved. None: the folder that FILE names."""
    device: str = "auto"
    """Device, such as cpu or cuda:1. auto: the GPU if there is one."""
    trust: bool = False
    """Use images that FILE names, and code that its encoder names. What you made does not need it."""


def run(words: Sequence[str]) -> None:
    options = parse("neighbours", NeighboursOptions, words)
    from hypersphere.inference.neighbours import neighbours
    from hypersphere.report.gallery import write_gallery
    from hypersphere.util.files import check_file
    from hypersphere.util.text import printable
    from hypersphere.util.trust import trust

    if options.page is not None:
        check_file(options.page, "page")
    file, queries = options.file, options.query
    if options.trust:
        trust(file)
    count, encoder, device = options.count, options.encoder, options.device
    found = neighbours(file, queries, count=count, encoder=encoder, device=device, trust=options.trust)
    for one in found:
        print(f"{printable(one.query)}:")
        for path, cosine in one.neighbours:
            print(f"  {cosine:.4f}  {printable(path)}")
    if options.page is not None:
        write_gallery(options.page, found, file)
        print(f"written to {options.page}: open it in a browser")
    else:
        print_next("neighbours", file, *queries, "--page", "neighbours.html")
