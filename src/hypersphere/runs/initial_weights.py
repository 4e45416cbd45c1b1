"""Initial weights of an encoder: from a file, a run, an exported folder, or its library."""

from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from hypersphere.config import Config
from hypersphere.errors import UserError
from hypersphere.nn.libraries import pretrained_model
from hypersphere.nn.weights import CARD, ShapeMismatch, exported_weights, load_tensors, read_weights
from hypersphere.util.console import notify
from hypersphere.util.records import read_record
from hypersphere.util.run_files import CHECKPOINT, RUN_RECORD

PRETRAINED = "pretrained"
STEMS = {3: "cifar", 7: "imagenet"}  # by the side of a ResNet's first filters


class _RunRecord(TypedDict):
    """What is read of run.json."""

    config: dict[str, Any]


def load_initial_weights(encoder: nn.Module, config: Config, channels: int) -> None:
    """Load the weights that `init` names into the encoder, and print which of them it does not have.

    Raises:
        UserError: If they cannot be read, or do not fit the encoder.
    """
    if config.init is None:
        return
    weights = _weights(encoder, config, channels)
    if config.norm != "batch" and any(name.endswith("running_mean") for name in weights):
        raise UserError(f"`init` {config.init} has BatchNorm, but `norm` {config.norm} has none: use `norm` batch")
    try:
        left_out = load_tensors(encoder, weights, f"`init` {config.init}")
    except ShapeMismatch as wrong:
        raise UserError(f"{wrong}{_advice(wrong, channels) or _its_encoder(config)}") from None
    except UserError as wrong:
        raise UserError(f"{wrong}{_its_encoder(config)}") from None
    listed = ", ".join(left_out[:3]) + (f" and {len(left_out) - 3} more" if len(left_out) > 3 else "")
    others = f"; ignored, since the encoder has no such layer: {listed}" if left_out else ""
    notify(f"{config.encoder} starts from {config.init}{others}")


def check_init(init: str | None) -> None:
    """Refuse a name that does not exist, before images are read."""
    if init not in (None, PRETRAINED):
        _file_of(init)


def initial_channels(init: str) -> int:
    """Number of channels that weights are for, as the filters of their first convolution say; 3 if there are none."""
    if init == PRETRAINED:
        return 3
    filters = (tensor for tensor in read_weights(_file_of(init)).values() if tensor.ndim == 4)
    return next((tensor.shape[1] for tensor in filters), 3)


def _weights(encoder: nn.Module, config: Config, channels: int) -> dict[str, Tensor]:
    assert config.init is not None
    if config.init != PRETRAINED:
        return read_weights(_file_of(config.init))
    if not config.encoder.startswith(("torchvision/", "timm/")):
        raise UserError(f"`init` pretrained needs an encoder of torchvision or timm, got {config.encoder}")
    if channels != 3 and config.encoder.startswith("torchvision/"):
        others = "leave out `init`, or use a model of timm, which adapts its weights"
        raise UserError(
            f"`init` pretrained of {config.encoder} is for 3 channels, but images have {channels}: {others}"
        )
    with torch.random.fork_rng(devices=[]):  # the seed alone decides how the heads start
        return pretrained_model(config.encoder, channels, like=encoder).state_dict()


def _file_of(init: str) -> Path:
    path = Path(init).expanduser()
    inside = {RUN_RECORD: CHECKPOINT, CARD: exported_weights(path).name}
    file = next((path / weights for known, weights in inside.items() if (path / known).is_file()), path)
    if file.is_file():
        return file
    expected = "expected pretrained, a file of weights, the folder of a run, or one that hypersphere export wrote"
    problem = "is not a file" if file == path else f"has no {file.name}"
    raise UserError(f"`init` {init} {problem}: {expected}")


def _its_encoder(config: Config) -> str:
    """Which encoder the run or exported folder has that `init` names, if it is another one."""
    record = Path(str(config.init)).expanduser() / RUN_RECORD
    its = read_record(record, _RunRecord)["config"].get("encoder") if record.is_file() else None
    return (
        "" if its in (None, config.encoder) else f"; its encoder is {its}, not {config.encoder}: pass `encoder` {its}"
    )


def _advice(wrong: ShapeMismatch, channels: int) -> str:
    """What to change if the first layer is for other images."""
    there, here = wrong.there, wrong.here
    if len(there) == len(here) == 4 and here[1] == channels != there[1]:
        return f"; it is for images of {there[1]} channels, but these have {channels}"
    if wrong.name == "conv1.weight" and there[2:] != here[2:] and there[-1] in STEMS:
        return f": use `stem` {STEMS[there[-1]]}"
    return ""
