"""Load a trained encoder with its preprocessing and classifier, from a run or from an exported folder."""

import copy
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import remove_parametrizations

from hypersphere.errors import UserError, first_line
from hypersphere.inference.head import Head, HeadRecord, Predictions, read_head
from hypersphere.inference.library_models import library_model
from hypersphere.nn import build_encoder, features_of
from hypersphere.nn.levels import Level
from hypersphere.nn.libraries import model_name
from hypersphere.nn.weights import CARD, exported_weights, read_weights
from hypersphere.runs.machine import pick_device
from hypersphere.runs.preprocess import Picture as Picture
from hypersphere.runs.preprocess import Preprocess, PreprocessRecord, encode_pictures, encode_pixels
from hypersphere.runs.run import check_given, load_run
from hypersphere.util.console import pluralize
from hypersphere.util.files import sha256_of
from hypersphere.util.notebook import html_table
from hypersphere.util.records import read_record
from hypersphere.util.run_files import is_run
from hypersphere.util.trust import check_code
from hypersphere.util.trust import trust as trust_path

KIND = "hypersphere encoder, version 1"


class _Architecture(TypedDict):
    channels: int
    stem: NotRequired[Literal["cifar", "imagenet"]]
    norm: NotRequired[Literal["batch", "group", "none"]]
    dimensions: NotRequired[int | None]
    size: NotRequired[int | None]


class _Weights(TypedDict):
    sha256: str


class _Origin(TypedDict):
    hash: str
    config: dict[str, Any]


class Card(TypedDict):
    """What is read of card.json; `describe` in card.py writes it."""

    encoder: str
    architecture: _Architecture
    input: PreprocessRecord
    weights: _Weights
    run: NotRequired[_Origin]
    classifier: NotRequired[HeadRecord]


@dataclass(frozen=True)
class Loaded:
    """An encoder in evaluation mode and its preprocessing, as `hypersphere.load` returns them.

    Attributes:
        source: Where it was loaded from.
        encoder: The module.
        preprocess: Function that turns an image into the input of the encoder.
        head: The classifier, if the folder has one.
    """

    source: Path
    encoder: nn.Module
    preprocess: Preprocess
    head: Head | None = None

    def __repr__(self) -> str:
        about = ", ".join(f"{name} {value}" for name, value in self._rows())
        return f"<{about}; from {self.source}>"

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        return html_table(f"encoder of {self.source}", self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        weights = sum(weight.numel() for weight in self.encoder.parameters())
        look = self.preprocess
        return [
            ("encoder", f"{type(self.encoder).__name__}, {weights:,} weights, {self.features} features"),
            ("input", f"{look.size} × {look.size} pixels, {pluralize(len(look.mean), 'channel')}"),
        ]

    @property
    def features(self) -> int:
        """Number of features of an image."""
        return features_of(self.encoder)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the weights as `export` writes them."""
        return hashlib.sha256(weights_as_bytes(plain(self.encoder))).hexdigest()

    def encode(self, pictures: Iterable[Picture], level: Level | None = None, pooled: bool = False) -> Tensor:
        """Features of images.

        Args:
            pictures: Paths, PIL images, contents of image files, or tensors or arrays of shape (C, H, W), (H, W, C)
                or (H, W), with numbers as `hs.pretrain` takes them; or one tensor or array of N of them.
            level: None for the features. 1 to 4 for the maps of a stage of a ResNet, of shape (N, C, H, W), and
                "patches" for the patch tokens of a vision transformer, of shape (N, P, D).
            pooled: Whether to average the output of `level` over positions, to shape (N, C) or (N, D).

        Returns:
            Features of shape (N, D) in float32, on the device of the encoder.

        Raises:
            UserError: If an image cannot be read, or the encoder does not have the level.
        """
        return encode_pictures(self.encoder, self.preprocess, pictures, level, pooled)

    def predict(self, pictures: Iterable[Picture]) -> Predictions:
        """Classes of images, by the classifier that `hypersphere classify` or `hs.classify` made.

        Args:
            pictures: Paths, PIL images, contents of image files, or tensors or arrays of shape (C, H, W), (H, W, C)
                or (H, W), with numbers as `hs.pretrain` takes them; or one tensor or array of N of them.

        Returns:
            `labels`, the most probable class of each of N images; `probabilities`, a tensor of shape (N, C) on the
            device of the encoder; and `classes`, the names of its columns.

        Raises:
            UserError: If there is no classifier, or an image cannot be read.
        """
        return self.classifier.predict(self.encode(pictures))

    @property
    def classifier(self) -> Head:
        """The head. Raises a UserError if there is none."""
        if self.head is None:
            raise UserError(f"{self.source} is an encoder without a classifier: make one with hypersphere classify")
        return self.head

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Features of shape (N, D) of uint8 pixels of shape (N, 3, side, side)."""
        return encode_pixels(self.encoder, self.preprocess, pixels)

    @property
    def device(self) -> torch.device:
        return next(self.encoder.parameters()).device


def load(
    path: str | Path,
    device: str | torch.device = "auto",
    *,
    encoder: nn.Module | None = None,
    trust: bool = False,
) -> Loaded:
    """Load a trained encoder for use.

    Args:
        path: Folder of a run, a folder that `export` or `classify` wrote, or the card.json in one; or the name of a
            model of a library, such as timm/resnet50, which is loaded with its published weights.
        device: Device for the encoder, such as "cpu" or "cuda:1". By default a GPU if there is one.
        encoder: A network like the one that was passed to `hs.pretrain` as an object. Its weights do not matter, and it
            stays as it is.
        trust: Whether to import and run code that the folder names, such as an encoder of its author's own. Folders
            that you wrote do not need it.

    Returns:
        The encoder with its preprocessing. `.encode(images)` computes features; `.predict(images)` classifies them, if
        the folder has a classifier.

    Raises:
        UserError: If there is no encoder, its files are damaged, or the weights are not those that the card describes.

    Example:
        >>> import hypersphere as hs
        >>> run = hs.pretrain("byol", data="digits", epochs=1, batch=256, hidden=8, knn_every=0, progress=False)
        >>> loaded = hs.load(run.path, device="cpu")
        >>> loaded.encode([torch.zeros(1, 28, 28, dtype=torch.uint8), torch.zeros(3, 40, 30, dtype=torch.uint8)]).shape
        torch.Size([2, 128])
    """
    path = Path(path)
    if trust:
        trust_path(path)
    if is_run(path):
        run = load_run(path, "cpu", encoder=encoder)
        trained, preprocess, head = run.encoder, Preprocess.of(run.config), None
    elif path.name == CARD or (path / CARD).is_file():
        trained, preprocess, head = _of_card(path if path.name == CARD else path / CARD, encoder)
    elif path.exists():
        raise UserError(f"{path} is neither a run (no run.json) nor an exported encoder (no {CARD})")
    elif (name := model_name(os.fspath(path))) is not None:
        (trained, preprocess), head = library_model(name), None
    else:
        expected = "the folder of a run, one that hypersphere export wrote, or a model such as timm/resnet18"
        raise UserError(f"{path} does not exist: expected {expected}")
    where = pick_device(device)
    layout = torch.channels_last if where.type == "cuda" else torch.preserve_format
    trained = trained.to(where).to(memory_format=layout).eval()
    return Loaded(path, trained, preprocess, head and head.to(where))


def read_card(file: Path) -> Card:
    """Read the card.json of an exported encoder."""
    if read_record(file, dict[str, Any]).get("kind") != KIND:
        raise UserError(f"{file} is not the card of an exported encoder")
    return read_record(file, Card)


def _of_card(file: Path, given: nn.Module | None) -> tuple[nn.Module, Preprocess, Head | None]:
    card = read_card(file)
    check_given(file, card["encoder"], given)
    check_code(file, {"encoder": card["encoder"]})
    try:
        preprocess = Preprocess.from_json(card["input"])
        encoder = plain(build_encoder(card["encoder"], **card["architecture"]))
    except UserError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{file} is damaged ({first_line(error)})") from None
    weights = exported_weights(file.parent)
    if not weights.is_file():
        raise UserError(f"{weights} does not exist, but {file.name} describes it")
    if sha256_of(weights) != card["weights"]["sha256"]:
        raise UserError(f"{weights} is not the file that {file.name} describes: their hashes differ")
    try:
        encoder.load_state_dict(read_weights(weights))
    except RuntimeError as error:
        raise UserError(f"{weights} does not fit {card['encoder']} ({str(error).splitlines()[1].strip()})") from None
    head = read_head(file, card["classifier"], features_of(encoder)) if "classifier" in card else None
    return encoder, preprocess, head


def plain(encoder: nn.Module) -> nn.Module:
    """A copy on the CPU in evaluation mode, whose weights are plain tensors without parametrizations."""
    encoder = copy.deepcopy(encoder).cpu().to(memory_format=torch.contiguous_format).eval()
    for module in list(encoder.modules()):
        names = list(getattr(module, "parametrizations", ()))
        if names:  # removing them changes the class, which torch's copies share: make one of its own
            kind = type(module)
            module.__class__ = type(kind.__name__, kind.__bases__, dict(vars(kind)))
        for name in names:
            remove_parametrizations(module, name)
    return encoder


def weights_as_bytes(encoder: nn.Module) -> bytes:
    """The weights as the content of a .safetensors file."""
    layout = torch.contiguous_format
    tensors = {
        name: tensor.clone(memory_format=layout) for name, tensor in encoder.state_dict().items()
    }  # may share memory
    return safetensors.torch.save(tensors, metadata={"format": "pt"})
