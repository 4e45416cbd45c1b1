"""What an encoder starts from: the weights of a file, of a run or an exported folder, or those of its library."""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

from hypersphere.config import Config
from hypersphere.errors import UserError
from hypersphere.nn.weights import CARD, WEIGHTS, OtherShape, put_weights, read_weights
from hypersphere.nn.zoo import build_model
from hypersphere.util.progress import tell

PRETRAINED = "pretrained"
STEMS = {3: "cifar", 7: "imagenet"}  # by the side of a ResNet's first filters


def start_from(encoder: nn.Module, config: Config, channels: int) -> None:
    """Put the weights that `init` names into the encoder, and tell it."""
    if config.init is None:
        return
    weights = _weights(config, channels)
    try:
        left_out = put_weights(encoder, weights, f"`init` {config.init}")
    except OtherShape as wrong:
        raise UserError(f"{wrong}{_advice(wrong, channels)}") from None
    except UserError:
        if config.norm == "batch" or not _are_normalized(weights):
            raise
        left_out = list(weights)
    if config.norm != "batch" and _are_normalized(left_out):
        raise UserError(f"`init` {config.init} has BatchNorm, which `norm` {config.norm} leaves out: say `norm` batch")
    others = f"; left out, having no such layer: {_listed(left_out)}" if left_out else ""
    tell(f"{config.encoder} starts from {config.init}{others}")


def _are_normalized(names: Iterable[str]) -> bool:
    return any(name.endswith("running_mean") for name in names)


def check_init(init: str | None) -> None:
    """Is there anything of this name? Before images are read."""
    if init not in (None, PRETRAINED):
        _file_of(init)


def _weights(config: Config, channels: int) -> dict[str, Tensor]:
    assert config.init is not None
    if config.init != PRETRAINED:
        return read_weights(_file_of(config.init))
    if not config.encoder.startswith(("torchvision/", "timm/")):
        raise UserError(f"`init` pretrained is for encoders of torchvision and timm: no library has {config.encoder}")
    with torch.random.fork_rng(devices=[]):  # the heads are those of the seed, wherever the encoder starts
        return build_model(config.encoder, channels, pretrained=True).state_dict()


def _file_of(init: str) -> Path:
    path = Path(init).expanduser()
    inside = {"run.json": "checkpoint.pt", CARD: WEIGHTS}
    file = next((path / weights for known, weights in inside.items() if (path / known).is_file()), path)
    if file.is_file():
        return file
    wanted = "give pretrained, a file of weights, a run's folder, or one that hypersphere export wrote"
    raise UserError(f"`init` {init}: there is no {'file' if file == path else file.name} here: {wanted}")


def _advice(wrong: OtherShape, channels: int) -> str:
    """Where the first layer is for other images."""
    there, here = wrong.there, wrong.here
    if len(there) == len(here) == 4 and here[1] == channels != there[1]:
        return f"; it takes images of {there[1]} channels, and these have {channels}"
    if wrong.name == "conv1.weight" and there[2:] != here[2:] and there[-1] in STEMS:
        return f": say `stem` {STEMS[there[-1]]}"
    return ""


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
