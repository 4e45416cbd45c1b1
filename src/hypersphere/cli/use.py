"""Commands that use an encoder."""

import dataclasses
from pathlib import Path
from typing import Literal

from hypersphere.cli.options import parse, take_word, take_words, with_short
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
    from hypersphere.data.folder import shown
    from hypersphere.inference.neighbours import neighbours as nearest
    from hypersphere.report.gallery import write_gallery
    from hypersphere.util.files import check_file

    if options.page is not None:
        check_file(options.page, "page")
    file, *queries = places
    found = nearest(file, queries, count=options.count, encoder=options.encoder, device=options.device)
    for one in found:
        print(f"{shown(one.query)}:")
        for path, cosine in one.neighbours:
            print(f"  {cosine:.4f}  {shown(path)}")
    if options.page is not None:
        write_gallery(options.page, found, file)
        print(f"written to {options.page}")


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    # Folder to write to (None: export in the run's folder).
    out: Path | None = None
    # onnx: an ONNX file as well, for batches of any size.
    format: Literal["safetensors", "onnx"] = "safetensors"


def export(words: list[str]) -> None:
    path = take_word(words, ExportOptions, "RUN")
    about = "Write a run's encoder as encoder.safetensors and card.json, which says how to load and feed it."
    options = parse(ExportOptions, words, "hypersphere export RUN", about, ExportOptions())
    if path is None:
        raise UserError("say which run to export: hypersphere export RUN")
    from hypersphere.inference.exporting import FILES
    from hypersphere.inference.exporting import export as write

    folder = write(path, options.out, options.format)
    print(f"written to {folder}: {', '.join(FILES[options.format])}")
