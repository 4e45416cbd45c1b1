"""A run's encoder in files that load anywhere: its weights, a card that says how to use them, and ONNX."""

import contextlib
import hashlib
import os
import shlex
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from hypersphere.errors import UserError, first_line
from hypersphere.inference.card import describe
from hypersphere.inference.loading import hash_of, plain, weights_as_bytes
from hypersphere.nn.weights import CARD, WEIGHTS
from hypersphere.runs.run import Run, load_run
from hypersphere.util.files import put_in_place, write_atomically, write_json
from hypersphere.util.progress import tell

ONNX = "encoder.onnx"
Format = Literal["safetensors", "onnx"]
FILES: dict[Format, tuple[str, ...]] = {"safetensors": (CARD, WEIGHTS), "onnx": (CARD, ONNX, WEIGHTS)}
TORCH_FOR_ONNX = "2.9"  # older ones do not go with any onnxscript of today
TOLERANCE = 1e-4  # between ONNX and torch, relative to the largest feature where that is above 1


def export(run: str | Path | Run, out: str | Path | None = None, format: Format = "safetensors") -> Path:
    """Write the encoder of a run, as its folder has it, into another (RUN/export by default), which is returned.

    It holds encoder.safetensors and card.json; with `format` onnx also encoder.onnx, checked against torch before.
    """
    loaded = load_run(run.path if isinstance(run, Run) else run, "cpu")
    folder = loaded.path / "export" if out is None else Path(out)
    _prepare(folder, format)
    encoder = plain(loaded.encoder)
    card = describe(loaded, encoder)
    if not card["metrics"] and loaded.labelled:
        command = f"hypersphere evaluate {shlex.quote(str(loaded.path))}"
        tell(f"update {loaded.step:,} is not evaluated, so the card has no metrics: {command}")
    blob = weights_as_bytes(encoder)
    card["weights"] = {"file": WEIGHTS, "sha256": hashlib.sha256(blob).hexdigest()}
    if format == "onnx":
        write_onnx(encoder, card["input"], folder / ONNX)
        card["onnx"] = {"file": ONNX, "sha256": hash_of(folder / ONNX), "input": "images", "output": "features"}
    write_atomically(folder / WEIGHTS, blob)
    write_json(folder / CARD, card)
    return folder


def _prepare(folder: Path, format: Format) -> None:
    if format not in get_args(Format):
        raise UserError(f"`format` must be one of {', '.join(get_args(Format))}, not {format!r}")
    if (folder / "run.json").exists():
        raise UserError(f"`out` {folder} is a run: name a folder of its own")
    if (folder / ONNX).exists() and format != "onnx":
        raise UserError(f"{folder / ONNX} would be of older weights than the rest: say `format` onnx, or another `out`")
    if format == "onnx":
        _check_onnx()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"`out` {folder} is a file: choose a folder") from None
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}") from None


def write_onnx(encoder: nn.Module, sizes: dict[str, Any], file: Path) -> None:
    """For batches of any size; put in place once it gives what torch gives."""
    shape = (sizes["channels"], sizes["size"], sizes["size"])
    some = torch.randn(5, *shape, generator=torch.Generator().manual_seed(0))
    with put_in_place(file) as scratch:
        _convert(encoder, some[:2], scratch)
        for batch in (1, 5):
            _compare(encoder, some[:batch], scratch)


def _check_onnx() -> None:
    if torch.__version__ < TORCH_FOR_ONNX:  # which compares versions, not strings
        raise UserError(f"`format` onnx needs torch {TORCH_FOR_ONNX} or newer, not {torch.__version__}")
    try:
        import onnx  # noqa: F401
        import onnxruntime  # type: ignore[import-untyped] # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(f"`format` onnx needs {error.name}: pip install 'hypersphere[onnx]'") from None


def _convert(encoder: nn.Module, images: torch.Tensor, file: Path) -> None:
    options: Any = {"dynamic_shapes": ({0: torch.export.Dim("batch")},), "external_data": False, "verbose": False}
    names: Any = {"input_names": ["images"], "output_names": ["features"]}
    with warnings.catch_warnings(), open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        warnings.simplefilter("ignore")  # of the exporter about itself
        try:
            torch.onnx.export(encoder, (images,), file, dynamo=True, **options, **names)
        except torch.onnx.OnnxExporterError as error:
            made = f"torch {torch.__version__} with onnxscript {version('onnxscript')}"
            reason = first_line(error.__cause__ or error)
            raise UserError(f"{made} cannot make ONNX of this encoder, newer ones may ({reason})") from None


def _compare(encoder: nn.Module, images: torch.Tensor, file: Path) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    try:
        (found,) = session.run(["features"], {"images": images.numpy()})
    except Exception as error:  # of a class that onnxruntime does not publish
        hint = "where forward counts its images, x.shape[0] stays open, and len(x) does not"
        raise UserError(f"ONNX takes no batch of {len(images)} ({first_line(error)}): {hint}") from None
    with torch.no_grad():
        wanted = encoder(images)
    furthest = float((torch.from_numpy(found) - wanted).abs().max())
    if not furthest <= TOLERANCE * max(1.0, float(wanted.abs().max())):
        raise UserError(f"ONNX and torch differ by {furthest:.1e} in a batch of {len(images)}: it is not written")
