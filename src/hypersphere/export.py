"""A run's encoder in files that load anywhere: its weights, a card that says how to use them, and ONNX."""

import contextlib
import hashlib
import os
import shlex
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from hypersphere.build import view_recipe
from hypersphere.config import Config
from hypersphere.data.decode import WHITE
from hypersphere.errors import UserError, first_line
from hypersphere.files import put_in_place, write_atomically, write_json
from hypersphere.loading import KIND, Preprocess, hash_of, plain, weights_as_bytes
from hypersphere.machine import provenance
from hypersphere.nn import ENCODERS, features_of
from hypersphere.nn.encoders import takes_channels
from hypersphere.nn.weights import CARD, WEIGHTS
from hypersphere.nn.zoo import OPTIONS
from hypersphere.progress import tell
from hypersphere.run import Run, load_run
from hypersphere.written import is_reference, referred_to

ONNX = "encoder.onnx"
Format = Literal["safetensors", "onnx"]
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


def describe(run: Run, encoder: nn.Module) -> dict[str, Any]:
    """The card, but for its files."""
    config, preprocess = run.config, Preprocess.of(run.config)
    channels = len(view_recipe(config).mean)
    library = config.encoder.partition("/")[0]
    of_a_library = library != "hypersphere" and not is_reference(config.encoder)
    lines = snippets(config, channels, encoder)
    return {
        "kind": KIND,
        "encoder": config.encoder,
        "library": library if of_a_library else None,
        "architecture": {
            "channels": channels,
            "stem": config.stem,
            "norm": config.norm,
            "dimensions": config.dimensions,
        },
        "features": features_of(encoder),
        "input": {"channels": channels, **vars(preprocess), "steps": steps(preprocess)},
        "load": lines or f"no library has {config.encoder}: hypersphere.load(FOLDER) reads it",
        "run": {"title": config.title, "hash": config.hash, "step": run.step, "config": config.to_json()},
        "metrics": measured(run),
        "versions": _versions(),
    }


def steps(preprocess: Preprocess) -> list[str]:
    """What happens to a picture before the encoder, and ONNX too, sees it."""
    side, size, resize, crop = preprocess.side, preprocess.size, preprocess.resize, preprocess.crop
    white = preprocess.white or WHITE
    colours = "in RGB" if len(preprocess.mean) == 3 else "in grey"
    told = [
        f"a JPEG of {2 * side} pixels or more on its shorter side is decoded at 1/2, 1/4 or 1/8 of its size, so that "
        f"{side} or more are left (PIL's draft); any picture is turned as its EXIF data says, and lies over white",
        f"a grey picture of more than 8 bits (PIL's modes that begin with I) is brought to 8: each value, made 0 or "
        f"{white} where it is beyond, × 256 / {white + 1}, rounded down; of one in colours PIL reads the upper 8 bits",
        f"its middle square (from (width − height) / 2 on, be that between two pixels), {colours}, resized to {side} "
        "pixels a side (PIL's bicubic, with box=)",
    ]
    if resize not in (None, side):
        told.append(f"resized to {resize} pixels a side")
    if crop is not None:
        told.append(f"of that the middle square of {crop} pixels a side")
    if (crop or resize or side) != size:
        told.append(f"resized to {size} pixels a side")
    return [*told, "values / 255, minus `mean`, divided by `std`, by channel: this is what the encoder takes"]


def snippets(config: Config, channels: int, encoder: nn.Module) -> dict[str, list[str]]:
    """Lines of code by library that load the weights; none where no library has the architecture."""
    library, _, name = config.encoder.partition("/")
    if library == "hypersphere":
        return {}
    if is_reference(config.encoder):
        module, _, maker = config.encoder.partition(":")
        given = f"channels={channels}" if takes_channels(referred_to(config.encoder)) else ""
        return {module: _lines(module, f"{module}.{maker}({given})", [])}
    if library == "timm":
        return {"timm": _lines("timm", f'timm.create_model("{name}", num_classes=0, in_chans={channels})', [])}
    if config.encoder not in ENCODERS:
        options = "".join(f", {option}={value}" for option, value in OPTIONS.get(name, {}).items())
        cut = f'model.set_submodule("{encoder.classified_at}", torch.nn.Identity())'
        return {"torchvision": _lines("torchvision", f'torchvision.models.get_model("{name}"{options})', [cut])}
    changes = list(_changes(config, channels, encoder))
    found = {"torchvision": _lines("torchvision", f"torchvision.models.{name}({_norm(config)})", changes)}
    if config.norm == "batch":
        found["timm"] = _lines("timm", f'timm.create_model("{name}")', changes)
    return found


def _lines(library: str, model: str, changes: list[str]) -> list[str]:
    return [
        f"import safetensors.torch, torch, {library}",
        f"model = {model}",
        *changes,
        f'model.load_state_dict(safetensors.torch.load_file("{WEIGHTS}"))',
        "model.eval()",
    ]


def _norm(config: Config) -> str:
    made = {"batch": "", "group": "torch.nn.GroupNorm(32, channels)", "none": "torch.nn.Identity()"}[config.norm]
    return f"norm_layer=lambda channels: {made}" if made else ""


def _changes(config: Config, channels: int, encoder: nn.Module) -> Iterator[str]:
    """Where a ResNet of ours is not the library's."""
    if config.stem == "cifar":
        yield f"model.conv1 = torch.nn.Conv2d({channels}, 64, kernel_size=3, stride=1, padding=1, bias=False)"
        yield "model.maxpool = torch.nn.Identity()"
    elif channels != 3:
        yield f"model.conv1 = torch.nn.Conv2d({channels}, 64, kernel_size=7, stride=2, padding=3, bias=False)"
    last = encoder.fc
    if isinstance(last, nn.Linear):
        yield f"model.fc = torch.nn.Linear({last.in_features}, {last.out_features})"
    else:
        yield "model.fc = torch.nn.Identity()"


def measured(run: Run) -> dict[str, Any]:
    """What evaluation.json says of this state of the encoder."""
    found = run.evaluations
    if (found.pop("hash", None), found.pop("step", None)) != (run.config.hash, run.step):
        return {}
    return found


def _versions() -> dict[str, str]:
    import safetensors
    import torchvision

    found = provenance(torch.device("cpu"))
    ours = {"hypersphere": found["version"], "commit": found["commit"], "python": found["python"]}
    return ours | {
        "torch": found["torch"],
        "torchvision": torchvision.__version__,
        "safetensors": safetensors.__version__,
    }


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
    (found,) = session.run(["features"], {"images": images.numpy()})
    with torch.no_grad():
        wanted = encoder(images)
    furthest = float((torch.from_numpy(found) - wanted).abs().max())
    if not furthest <= TOLERANCE * max(1.0, float(wanted.abs().max())):
        raise UserError(f"ONNX and torch differ by {furthest:.1e} in a batch of {len(images)}: it is not written")
