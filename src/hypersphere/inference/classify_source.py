"""What `classify` starts from: a run, an exported folder, or a model of a library."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hypersphere.errors import UserError, did_you_mean
from hypersphere.inference.card import describe, describe_model
from hypersphere.inference.library_models import library_model
from hypersphere.inference.loading import Loaded, load, plain
from hypersphere.nn.libraries import model_name, torchvision_names
from hypersphere.nn.weights import CARD
from hypersphere.runs.machine import pick_device
from hypersphere.runs.preprocess import Preprocess
from hypersphere.runs.run import Run, load_run
from hypersphere.util.records import read_record
from hypersphere.util.run_files import is_run
from hypersphere.util.trust import is_trusted

OF_THE_FILES = ("weights", "onnx", "classifier")  # what a card says of its files


@dataclass(frozen=True)
class EncoderSource:
    """An encoder with what the card of an export says of it.

    Attributes:
        loaded: The encoder and its preprocessing.
        card: Content of a card, without what it says of files.
        run: The run that trained it, if it is one.
        folder: Where a classifier is written by default.
    """

    loaded: Loaded
    card: dict[str, Any]
    run: Run | None
    folder: Path


def resolve_source(
    source: str | Path | Run,
    device: str | torch.device = "auto",
    *,
    pretrained: bool = True,
    size: int | None = None,
    trust: bool = False,
) -> EncoderSource:
    """Find the encoder that `source` means.

    Args:
        source: A run or its folder, a folder that `export` or `classify` wrote, or a model such as timm/resnet18.
        device: Device of the encoder.
        pretrained: Whether a model has the weights that its library publishes.
        size: Side of a model's input in pixels. None: that of its weights.
        trust: Whether to import and run code that a folder names.

    Raises:
        UserError: If there is no such encoder.
    """
    if isinstance(source, str | Path) and is_run(source):
        source = load_run(source, device, trust=trust)
    if isinstance(source, Run):
        loaded = Loaded(source.path, source.encoder, Preprocess.of(source.config))
        found = EncoderSource(loaded, describe(source, plain(source.encoder)), source, source.path / "classifier")
    elif (path := Path(source)).exists():
        loaded = load(path, device, trust=trust)
        folder = path.parent if path.name == CARD else path
        card = read_record(folder / CARD, dict[str, Any])
        unknown = () if is_trusted(folder / CARD) else ("run",)  # which names images; the new card will be trusted
        kept = {name: value for name, value in card.items() if name not in (*OF_THE_FILES, *unknown)}
        found = EncoderSource(loaded, kept, None, folder / "classifier")
    else:
        return _model(os.fspath(source), device, pretrained, size)
    if size is not None:
        raise UserError(f"`size` applies to models of libraries, not to {source}, whose input has a size: remove it")
    return found


def _model(source: str, device: str | torch.device, pretrained: bool, size: int | None) -> EncoderSource:
    name = model_name(source)
    if name is None:
        close = did_you_mean(source, torchvision_names())
        kinds = "a run's folder, an exported folder, or a model such as timm/resnet18"
        raise UserError(f"{source} does not exist{close}: pass {kinds}")
    encoder, preprocess = library_model(name, pretrained=pretrained, size=size)
    encoder = encoder.to(pick_device(device)).eval()
    card = describe_model(name, plain(encoder), preprocess)
    loaded = Loaded(Path(source), encoder, preprocess)
    return EncoderSource(loaded, card, None, Path("runs") / f"classifier-{Path(name).name}")
