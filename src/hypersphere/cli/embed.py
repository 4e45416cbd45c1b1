"""hypersphere embed: the vectors of images."""

import dataclasses
from pathlib import Path

from hypersphere.cli.options import parse, take_words, with_short
from hypersphere.errors import UserError


@dataclasses.dataclass(frozen=True)
class EmbedOptions:
    # The file to write, .parquet or .npz; -o for short.
    out: Path | None = None
    # Processes that decode image files (None: one for each core beside a GPU, else none).
    workers: int | None = None
    # auto: the GPU if there is one.
    device: str = "auto"


def embed(words: list[str]) -> None:
    words = with_short(words)
    places = take_words(words, EmbedOptions)
    about = (
        "Write path and vector of every image below the folder IMAGES, or in tar files, as .parquet or .npz.\n\n"
        "RUN: a run's folder, or one that export wrote."
    )
    options = parse(EmbedOptions, words, "hypersphere embed RUN IMAGES -o FILE", about, EmbedOptions())
    if len(places) != 2 or options.out is None:
        raise UserError("say what encodes which images into which file: hypersphere embed RUN IMAGES -o FILE.parquet")
    from hypersphere.inference.embed import embed as write

    run, images = places
    found = write(run, images, options.out, device=options.device, workers=options.workers, progress=True)
    print(
        f"{options.out}: {found.images:,} images, {found.dimensions} numbers each; {len(found.unreadable)} unreadable"
    )
