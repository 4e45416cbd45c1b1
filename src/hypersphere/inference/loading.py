"""Load a trained encoder with its preprocessing, from a run or from the folder that `export` wrote."""

import copy
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import remove_parametrizations

from hypersphere.config import Config
from hypersphere.data import Dataset, Images
from hypersphere.data.bands import MOST_CHANNELS, Unreadable, in_number
from hypersphere.data.decode import read_pixels
from hypersphere.data.loader import center_view
from hypersphere.data.tar_members import exists, file_or_member, opened
from hypersphere.data.torch_datasets import pixels_of
from hypersphere.errors import UserError, first_line
from hypersphere.evaluate import extract, in_channels
from hypersphere.nn import build_encoder, features_of
from hypersphere.nn.weights import CARD, WEIGHTS, read_weights
from hypersphere.runs.build import view_pipeline
from hypersphere.runs.machine import pick_device
from hypersphere.runs.run import load_run
from hypersphere.util.files import sha256_of
from hypersphere.util.records import check_record, read_record
from hypersphere.util.text import printable
from hypersphere.util.trust import check_code
from hypersphere.util.trust import trust as trust_path
from hypersphere.views import Augmentation, ViewPipeline
from hypersphere.views.crops import middle

KIND = "hypersphere encoder, version 1"
AT_ONCE = 64  # images decoded before they are encoded
LARGEST = 16_384  # pixels of a side

Picture = Any  # a path, a PIL image, the bytes of an image file, or a uint8 tensor or array C × H × W


class PreprocessRecord(TypedDict):
    """`Preprocess` as JSON has it."""

    side: int
    size: int
    mean: list[float]
    std: list[float]
    resize: int | None
    crop: int | None
    white: NotRequired[int | None]  # not in older files


class _Architecture(TypedDict):
    channels: int
    stem: NotRequired[Literal["cifar", "imagenet"]]
    norm: NotRequired[Literal["batch", "group", "none"]]
    dimensions: NotRequired[int | None]


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


@dataclass(frozen=True)
class Preprocess:
    """Turns an image into the normalized input of an encoder, as evaluation does.

    Attributes:
        side: Side in pixels to which the centre square of an image is first resized, in uint8.
        size: Side of the encoder's input in pixels.
        mean: Mean of each channel, subtracted from values between 0 and 1.
        std: Standard deviation of each channel.
        resize: Side to which the image is resized next, if any.
        crop: Side of the centre crop that is kept, if any.
        white: Value of white in images of more than 8 bits; None is 65,535, and 1 for floats.
    """

    side: int
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resize: int | None
    crop: int | None
    white: int | None = None

    def __post_init__(self) -> None:
        sides = {"side": self.side, "size": self.size, "resize": self.resize, "crop": self.crop}
        for name, value in sides.items():
            if value is not None and not 0 < value <= LARGEST:
                raise ValueError(f"{name} must be from 1 to {LARGEST} pixels, got {value}")
        if not 0 < len(self.mean) == len(self.std) <= MOST_CHANNELS:
            raise ValueError(f"mean and std must have a number for each channel, got {self.mean} and {self.std}")
        if not all(abs(mean) < 1e6 for mean in self.mean) or not all(1e-6 < std < 1e6 for std in self.std):
            raise ValueError(f"mean and std must be finite, and std above 0, got {self.mean} and {self.std}")

    @staticmethod
    def of(config: Config) -> "Preprocess":
        recipe, side = view_pipeline(config), Dataset.resolve(config).stored_side(config.size)
        return Preprocess(side, recipe.size, recipe.mean, recipe.std, recipe.resize, recipe.crop, config.white)

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> "Preprocess":
        """The preprocessing that a card or a file of embeddings describes. Raises a ValueError if it is damaged."""
        checked = check_record(saved, PreprocessRecord)
        known: dict[str, Any] = {name: checked.get(name) for name in PreprocessRecord.__annotations__}
        return Preprocess(**{**known, "mean": tuple(checked["mean"]), "std": tuple(checked["std"])})

    def __call__(self, picture: Picture) -> Tensor:
        """Input of the encoder, of shape (C, size, size).

        A JPEG file may be decoded at a smaller size, as in evaluation; a PIL image is not.
        """
        return self.view(torch.from_numpy(self.pixels(self.opened(picture)))[None])[0]

    def opened(self, picture: Picture) -> Tensor:
        """The image as uint8 of shape (C, H, W)."""
        channels = len(self.mean)
        if isinstance(picture, str | os.PathLike):
            picture = os.fspath(picture)
            if isinstance(file := file_or_member(picture), Path) and not exists(file):
                raise UserError(f"{printable(picture)} does not exist")
        try:
            if isinstance(picture, str):
                return read_pixels(opened(file_or_member(picture)), self.side, self.white, channels)
            if isinstance(picture, bytes) or _is_pil(picture):
                return pixels_of(picture, self.white, channels)
        except Unreadable as reason:
            name = printable(picture) if isinstance(picture, str) else f"an image given as {type(picture).__name__}"
            raise UserError(f"{name} cannot be read ({reason})") from None
        if isinstance(picture, Tensor | np.ndarray):
            return _from_array(np.asarray(picture.cpu() if isinstance(picture, Tensor) else picture), channels)
        kinds = "a path, a PIL image, the bytes of an image file or a uint8 array C × H × W"
        raise UserError(f"an image must be {kinds}, got {type(picture).__name__}")

    def pixels(self, image: Tensor, how: None = None) -> np.ndarray:
        """uint8 pixels of shape (C, side, side) from pixels of shape (C, H, W)."""
        return np.array(middle(image, self.side))  # a copy, since the memory of PIL is read-only

    def view(self, pixels: Tensor) -> Tensor:
        """Input of the encoder, of shape (N, C, size, size), from uint8 pixels of shape (N, C, side, side)."""
        recipe = ViewPipeline(self.size, self.mean, self.std, (), Augmentation(), self.resize, self.crop)
        images = Images(pixels, torch.empty(0), ())
        return center_view(recipe)(in_channels(images, len(self.mean)).pixels)


def _is_pil(picture: Any) -> bool:
    from PIL import Image

    return isinstance(picture, Image.Image)


def _from_array(pixels: np.ndarray, channels: int) -> Tensor:
    shape = tuple(pixels.shape)
    accepted = (1, 3) if channels in (1, 3) else (channels,)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or not pixels.size or shape[0] not in accepted:
        wanted = " or ".join(map(str, accepted))
        raise UserError(f"an image must be uint8 of shape ({wanted}, H, W), got {pixels.dtype} of shape {shape}")
    return torch.from_numpy(np.ascontiguousarray(in_number(pixels, channels)))


@dataclass(frozen=True)
class Loaded:
    """An encoder in evaluation mode and its preprocessing, as `hypersphere.load` returns them.

    Attributes:
        source: Where it was loaded from.
        encoder: The module.
        preprocess: Function that turns an image into the input of the encoder.
    """

    source: Path
    encoder: nn.Module
    preprocess: Preprocess

    @property
    def features(self) -> int:
        """Number of features of an image."""
        return features_of(self.encoder)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the weights as `export` writes them."""
        return hashlib.sha256(weights_as_bytes(plain(self.encoder))).hexdigest()

    def encode(self, pictures: Iterable[Picture]) -> Tensor:
        """Features of images.

        Args:
            pictures: Paths, PIL images, contents of image files, or uint8 tensors or arrays of shape (C, H, W).

        Returns:
            Features of shape (N, D) in float32, on the device of the encoder.

        Raises:
            UserError: If an image cannot be read.
        """
        if isinstance(pictures, str | bytes | os.PathLike) or _is_pil(pictures):
            raise UserError("encode() needs a list of images, got a single one: pass [image]")
        found = [torch.zeros(0, self.features, device=self.device)]
        images = (self.preprocess.opened(picture) for picture in pictures)
        while some := [self.preprocess.pixels(image) for image in islice(images, AT_ONCE)]:
            pixels = np.stack(some)
            found.append(self.encode_pixels(torch.from_numpy(pixels)))
        return torch.cat(found)

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Features of shape (N, D) of uint8 pixels of shape (N, C, side, side)."""
        return extract(self.encoder, pixels.to(self.device, non_blocking=True), self.preprocess.view)

    @property
    def device(self) -> torch.device:
        return next(self.encoder.parameters()).device


def load(path: str | Path, device: str | torch.device = "auto", *, trust: bool = False) -> Loaded:
    """Load a trained encoder for use.

    Args:
        path: Folder of a run, a folder that `export` wrote, or the card.json in one.
        device: Device for the encoder, such as "cpu" or "cuda:1". By default a GPU if there is one.
        trust: Whether to import and run code that the folder names, such as an encoder of its author's own. Folders
            that you wrote do not need it.

    Returns:
        The encoder with its preprocessing; `.encode(images)` computes features.

    Raises:
        UserError: If there is no encoder, its files are damaged, or the weights are not those that the card describes.

    Example:
        >>> import hypersphere as hs
        >>> run = hs.pretrain("byol", data="digits", epochs=1, batch=256, hidden=8, knn_every=0, progress=False)
        >>> loaded = hs.load(run.path, device="cpu")
        >>> loaded.encode([np.zeros((1, 28, 28), np.uint8), np.zeros((3, 40, 30), np.uint8)]).shape
        torch.Size([2, 128])
    """
    path = Path(path)
    if trust:
        trust_path(path)
    if (path / "run.json").is_file():
        run = load_run(path, "cpu")
        encoder, preprocess = run.encoder, Preprocess.of(run.config)
    elif path.name == CARD or (path / CARD).is_file():
        encoder, preprocess = _of_card(path if path.name == CARD else path / CARD)
    elif path.exists():
        raise UserError(f"{path} is neither a run (no run.json) nor an exported encoder (no {CARD})")
    else:
        raise UserError(f"{path} does not exist: expected the folder of a run, or one that hypersphere export wrote")
    where = pick_device(device)
    layout = torch.channels_last if where.type == "cuda" else torch.preserve_format
    return Loaded(path, encoder.to(where).to(memory_format=layout).eval(), preprocess)


def read_card(file: Path) -> Card:
    """Read the card.json of an exported encoder."""
    if read_record(file, dict[str, Any]).get("kind") != KIND:
        raise UserError(f"{file} is not the card of an exported encoder")
    return read_record(file, Card)


def _of_card(file: Path) -> tuple[nn.Module, Preprocess]:
    card = read_card(file)
    check_code(file, {"encoder": card["encoder"]})
    try:
        preprocess = Preprocess.from_json(card["input"])
        encoder = plain(build_encoder(card["encoder"], **card["architecture"]))
    except UserError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{file} is damaged ({first_line(error)})") from None
    weights = file.with_name(WEIGHTS)
    if not weights.is_file():
        raise UserError(f"{weights} does not exist, but {file.name} describes it")
    if sha256_of(weights) != card["weights"]["sha256"]:
        raise UserError(f"{weights} is not the file that {file.name} describes: their hashes differ")
    try:
        encoder.load_state_dict(read_weights(weights))
    except RuntimeError as error:
        raise UserError(f"{weights} does not fit {card['encoder']} ({str(error).splitlines()[1].strip()})") from None
    return encoder, preprocess


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
