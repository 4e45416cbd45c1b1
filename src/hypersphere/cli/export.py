"""hypersphere export: write an encoder as files that load without hypersphere."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from hypersphere.cli.next_step import print_next
from hypersphere.cli.options import parse


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Write a run's encoder as encoder.safetensors, with a card.json that says how to load and feed it."""

    run: Annotated[str, Positional, arg(metavar="RUN")]
    """Folder that pretrain wrote; or one that classify or export wrote, for --format onnx or a copy."""
    out: Annotated[Path | None, arg(aliases=["-o"])] = None
    """Folder to write to. None: `export` in the run's folder, or the exported folder itself."""
    format: Literal["safetensors", "onnx"] = "safetensors"
    """onnx: also write an ONNX file, for batches of any size."""
    trust: bool = False
    """Import and run code that the run names: its author's own method, encoder, regularizer or data. Runs that you made
    do not need it."""


def run(words: Sequence[str]) -> None:
    options = parse("export", ExportOptions, words)
    from hypersphere.inference.exporting import export, files_of
    from hypersphere.inference.head import HEAD

    folder = export(options.run, options.out, options.format, trust=options.trust)
    files = files_of(folder)
    print(f"written to {folder}: {', '.join(files)}")
    if HEAD in files:
        print_next("predict", folder, "IMAGES", "-o", "predictions.csv")
    else:
        print_next("embed", folder, "FOLDER_OF_IMAGES", "-o", "embeddings.npz")
