"""The card of exported weights: how to load and feed them, their origin, and their metrics."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from hypersphere.config import Config
from hypersphere.data.decode import WHITE
from hypersphere.inference.loading import KIND
from hypersphere.inference.preprocess_code import preprocess_code
from hypersphere.nn import ENCODERS, features_of
from hypersphere.nn.encoders import takes_channels
from hypersphere.nn.in_memory import is_in_memory
from hypersphere.nn.libraries import OPTIONS
from hypersphere.nn.weights import WEIGHTS
from hypersphere.runs.machine import provenance
from hypersphere.runs.preprocess import Preprocess
from hypersphere.runs.results import evaluations_of
from hypersphere.runs.run import Run
from hypersphere.util.references import import_reference, is_reference


def describe(run: Run, encoder: nn.Module) -> dict[str, Any]:
    """Content of the card of a run's encoder, without the hashes of the files."""
    config = run.config
    saved = {name: value for name, value in config.to_json().items() if name not in ("root", "out")}  # of this machine
    return {
        **describe_encoder(config, encoder, Preprocess.of(config), run.encoder),
        "run": {"title": config.title, "hash": config.hash, "step": run.step, "config": saved},
        "metrics": evaluations_of(run.path, run.config.hash, run.step),
        "versions": _versions(),
    }


def describe_model(name: str, encoder: nn.Module, preprocess: Preprocess) -> dict[str, Any]:
    """Content of the card of a model of a library, such as timm/resnet18."""
    config = Config(encoder=name, stem="imagenet", norm="batch")
    return {**describe_encoder(config, encoder, preprocess, encoder), "metrics": {}, "versions": _versions()}


def describe_encoder(config: Config, encoder: nn.Module, preprocess: Preprocess, trained: nn.Module) -> dict[str, Any]:
    """What the card has of an encoder: how to build, load and feed it. `trained` may have parametrizations."""
    channels = len(preprocess.mean)
    library = config.encoder.partition("/")[0]
    of_a_library = library in ("torchvision", "timm")
    lines = _snippets(config, channels, encoder, trained)
    return {
        "kind": KIND,
        "encoder": config.encoder,
        "library": library if of_a_library else None,
        "architecture": {
            "channels": channels,
            "stem": config.stem,
            "norm": config.norm,
            "dimensions": config.dimensions,
            "size": preprocess.size,
        },
        "features": features_of(encoder),
        "input": {"channels": channels, **vars(preprocess), "steps": _steps(preprocess)},
        "preprocess": preprocess_code(preprocess),
        "load": lines or _without_code(config.encoder),
    }


def _without_code(encoder: str) -> str:
    """How to load weights that no library and no module has a network for, in words."""
    if is_in_memory(encoder):
        return "the network was an object in memory: use hypersphere.load(FOLDER, encoder=network) with one like it"
    return f"no other library has {encoder}: use hypersphere.load(FOLDER)"


def _steps(preprocess: Preprocess) -> list[str]:
    """Preprocessing of an image for the encoder and for ONNX, in words."""
    side, size, resize, crop = preprocess.side, preprocess.size, preprocess.resize, preprocess.crop
    white = preprocess.white or WHITE
    channels = len(preprocess.mean)
    colours = {1: "grey", 3: "RGB"}.get(channels, f"all {channels} channels, in the order of the file")
    steps = [
        f"decode; a JPEG whose shorter side has at least {2 * side} pixels at 1/2, 1/4 or 1/8 of its size, with at "
        f"least {side} pixels left (PIL's draft); apply the EXIF orientation; put transparent images over white",
        f"convert images of more than 8 bits to 8 bits: clip to 0 … {white}, multiply by 256 / {white + 1}, round "
        f"down; of floats: divide by {preprocess.white or 1}, clip to 0 … 1, multiply by 255, round",
        f"take the centre square (from (width − height) / 2 on, also between two pixels) in {colours}, and resize it "
        f"to {side} × {side} pixels (PIL's bicubic, with box=)",
    ]
    if resize not in (None, side):
        steps.append(f"resize to {resize} × {resize} pixels")
    if crop is not None:
        steps.append(f"crop the centre {crop} × {crop} pixels")
    if (crop or resize or side) != size:
        steps.append(f"resize to {size} × {size} pixels")
    return [*steps, "divide by 255, subtract `mean` and divide by `std`, by channel"]


def _snippets(config: Config, channels: int, encoder: nn.Module, trained: nn.Module) -> dict[str, list[str]]:
    """Lines of code that load the weights, by library; empty if no library has the architecture."""
    library, _, name = config.encoder.partition("/")
    if library == "hypersphere" or is_in_memory(config.encoder):
        return {}
    if is_reference(config.encoder):
        module, _, maker = config.encoder.partition(":")
        given = f"channels={channels}" if takes_channels(import_reference(config.encoder)) else ""
        return {module: _lines(module, f"{module}.{maker}({given})", list(_without_parametrizations(trained)))}
    if library == "timm":
        options = _options(encoder.built_with)  # type: ignore[arg-type]
        return {"timm": _lines("timm", f'timm.create_model("{name}", num_classes=0, in_chans={channels}{options})', [])}
    if config.encoder not in ENCODERS:
        options = _options({**OPTIONS.get(name, {}), **encoder.built_with})  # type: ignore[dict-item]
        cut = f'model.set_submodule("{encoder.classified_at}", torch.nn.Identity())'
        return {"torchvision": _lines("torchvision", f'torchvision.models.get_model("{name}"{options})', [cut])}
    changes = list(_changes(config, channels, encoder))
    found = {"torchvision": _lines("torchvision", f"torchvision.models.{name}({_norm(config)})", changes)}
    if config.norm == "batch":
        found["timm"] = _lines("timm", f'timm.create_model("{name}")', changes)
    return found


def _options(options: dict[str, Any]) -> str:
    return "".join(f", {option}={value}" for option, value in options.items())


def _lines(library: str, model: str, changes: list[str]) -> list[str]:
    return [
        f"import safetensors.torch, torch, {library}",
        f"model = {model}",
        *changes,
        f'model.load_state_dict(safetensors.torch.load_file("{WEIGHTS}"))',
        "model.eval()",
    ]


def _without_parametrizations(encoder: nn.Module) -> Iterator[str]:
    """Lines that remove parametrizations, since the weights are stored without them."""
    for where, module in encoder.named_modules():
        for name in getattr(module, "parametrizations", ()):
            place = f'model.get_submodule("{where}")' if where else "model"
            yield f'torch.nn.utils.parametrize.remove_parametrizations({place}, "{name}")'


def _norm(config: Config) -> str:
    made = {"batch": "", "group": "torch.nn.GroupNorm(32, channels)", "none": "torch.nn.Identity()"}[config.norm]
    return f"norm_layer=lambda channels: {made}" if made else ""


def _changes(config: Config, channels: int, encoder: nn.Module) -> Iterator[str]:
    """Lines that change a ResNet of a library into ours."""
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
