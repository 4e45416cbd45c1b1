"""The card beside exported weights: how to load and feed them, where they come from, what was measured of them."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from hypersphere.config import Config
from hypersphere.data.decode import WHITE
from hypersphere.inference.loading import KIND, Preprocess
from hypersphere.nn import ENCODERS, features_of
from hypersphere.nn.encoders import takes_channels
from hypersphere.nn.weights import WEIGHTS
from hypersphere.nn.zoo import OPTIONS
from hypersphere.runs.build import view_recipe
from hypersphere.runs.machine import provenance
from hypersphere.runs.results import evaluations_of
from hypersphere.runs.run import Run
from hypersphere.util.written import is_reference, referred_to


def describe(run: Run, encoder: nn.Module) -> dict[str, Any]:
    """The card, but for its files."""
    config, preprocess = run.config, Preprocess.of(run.config)
    channels = len(view_recipe(config).mean)
    library = config.encoder.partition("/")[0]
    of_a_library = library != "hypersphere" and not is_reference(config.encoder)
    lines = _snippets(run, channels, encoder)
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
        "input": {"channels": channels, **vars(preprocess), "steps": _steps(preprocess)},
        "load": lines or f"no library has {config.encoder}: hypersphere.load(FOLDER) reads it",
        "run": {"title": config.title, "hash": config.hash, "step": run.step, "config": config.to_json()},
        "metrics": evaluations_of(run.path, run.config.hash, run.step),
        "versions": _versions(),
    }


def _steps(preprocess: Preprocess) -> list[str]:
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


def _snippets(run: Run, channels: int, encoder: nn.Module) -> dict[str, list[str]]:
    """Lines of code by library that load the weights; none where no library has the architecture."""
    config = run.config
    library, _, name = config.encoder.partition("/")
    if library == "hypersphere":
        return {}
    if is_reference(config.encoder):
        module, _, maker = config.encoder.partition(":")
        given = f"channels={channels}" if takes_channels(referred_to(config.encoder)) else ""
        return {module: _lines(module, f"{module}.{maker}({given})", list(_made_plain(run.encoder)))}
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


def _made_plain(encoder: nn.Module) -> Iterator[str]:
    """The weights are as parametrizations put them out."""
    for where, module in encoder.named_modules():
        for name in getattr(module, "parametrizations", ()):
            place = f'model.get_submodule("{where}")' if where else "model"
            yield f'torch.nn.utils.parametrize.remove_parametrizations({place}, "{name}")'


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
