"""hypersphere embed: write the embedding of every image to a file."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from hypersphere.cli.next_step import print_next
from hypersphere.cli.parsing import parse


@dataclasses.dataclass(frozen=True)
class EmbedOptions:
    """Write path and embedding of every image to a .parquet, .npz or .csv file."""

    run: Annotated[str, Positional, arg(metavar="RUN")]
    """Folder of a run, or one that export wrote; or a model of a library, such as timm/resnet50."""
    images: Annotated[str, Positional, arg(metavar="IMAGES")]
    """Folder of images, or anything else that --data of pretrain takes; or a single image file."""
    out: Annotated[Path, arg(aliases=["-o"])]
    """File to write, .parquet, .npz or .csv."""
    workers: int | None = None
    """Processes that decode image files. None: one per core if there is a GPU, else none."""
    device: str = "auto"
    """Device, such as cpu or cuda:1. auto: the GPU if there is one."""
    trust: bool = False
    """Import and run code that the run or exported encoder names. What you made does not need it."""


def run(words: Sequence[str]) -> None:
    options = parse("embed", EmbedOptions, words)
    from hypersphere.inference.embed_to_file import embed
    from hypersphere.inference.embedding_files import SEARCHED
    from hypersphere.util.console import pluralize

    out, device, workers = options.out, options.device, options.workers
    trust = options.trust
    found = embed(options.run, options.images, out, device=device, workers=workers, trust=trust, progress=True)
    images, unreadable = pluralize(found.images, "image"), len(found.unreadable)
    print(f"{out}: {images}, {found.dimensions} numbers each; {unreadable} unreadable")
    if out.suffix in SEARCHED:
        print_next("neighbours", out, "IMAGE", "--page", "neighbours.html")
