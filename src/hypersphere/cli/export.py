"""hypersphere export: an encoder as files that load anywhere."""

import dataclasses
from pathlib import Path
from typing import Literal

from hypersphere.cli.options import parse, take_word
from hypersphere.errors import UserError


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
