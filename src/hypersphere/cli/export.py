"""hypersphere export: write an encoder as files that load without hypersphere."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from hypersphere.cli.next_step import print_next
from hypersphere.cli.parsing import parse


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Write a run's encoder as encoder.safetensors, with a card.json that says how to load and feed it; or as a folder
    for the Hugging Face Hub."""

    run: Annotated[str, Positional, arg(metavar="RUN")]
    """Folder that pretrain wrote; or one that classify or export wrote, for --format onnx or a copy."""
    out: Annotated[Path | None, arg(aliases=["-o"])] = None
    """Folder to write to. None: `export` in the run's folder, or the exported folder itself; for the Hub, `hub`."""
    format: Literal["safetensors", "onnx", "timm", "hub"] = "safetensors"
    """onnx: also write an ONNX file, for batches of any size. hub: a folder for the Hugging Face Hub, with a README.md;
    timm loads it if it has the network. timm: the same, but an error if timm cannot load it."""
    repository: str | None = None
    """USER/NAME of the folder on the Hub, for the usage in README.md."""
    trust: bool = False
    """Import and run code that the run names: its author's own method, encoder, regularizer or data. Runs that you made
    do not need it."""


def run(words: Sequence[str]) -> None:
    options = parse("export", ExportOptions, words)
    from hypersphere.inference.exporting import FOR_THE_HUB, export, files_of
    from hypersphere.inference.head import HEAD

    repository, trust = options.repository, options.trust
    folder = export(options.run, options.out, options.format, repository=repository, trust=trust)
    files = files_of(folder)
    print(f"written to {folder}: {', '.join(files)}")
    if options.format in FOR_THE_HUB:
        print(f"to publish it: hf upload {repository or 'USER/NAME'} {shlex.quote(str(folder))}")
    if HEAD in files:
        print_next("predict", folder, "IMAGES", "-o", "predictions.csv")
    else:
        print_next("embed", folder, "FOLDER_OF_IMAGES", "-o", "embeddings.npz")
