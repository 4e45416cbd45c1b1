"""An encoder ready for use, and what it wants to see: from a run's folder, or from what `export` wrote."""

import copy
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import remove_parametrizations

from hypersphere.config import Config
from hypersphere.data import Dataset, Images
from hypersphere.data.decode import Unreadable, as_rgb, read_image
from hypersphere.data.loader import center_view
from hypersphere.data.members import file_or_member, opened
from hypersphere.errors import UserError
from hypersphere.evaluate import extract, in_channels
from hypersphere.nn import build_encoder, features_of
from hypersphere.nn.weights import CARD, WEIGHTS, read_weights
from hypersphere.runs.build import view_recipe
from hypersphere.runs.machine import pick_device
from hypersphere.runs.run import load_run
from hypersphere.util.text import printable
from hypersphere.util.written import check_installed
from hypersphere.views import Augmentation, Recipe
from hypersphere.views.crops import middle

KIND = "hypersphere encoder, version 1"
AT_ONCE = 64  # images decoded before they are encoded

Picture = Any  # a path, a PIL image, the bytes of an image file, or C × H × W bytes as a tensor or array


@dataclass(frozen=True)
class Preprocess:
    """A picture → the normalized input of the encoder, as evaluation makes it."""

    side: int  # the middle of a picture is first brought to so many pixels a side, as bytes
    size: int  # of the input
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resize: int | None
    crop: int | None  # pixels in the middle that are kept
    white: int | None = None  # in grey files of 16 bits

    @staticmethod
    def of(config: Config) -> "Preprocess":
        recipe, side = view_recipe(config), Dataset.resolve(config).stored_side(config.size)
        return Preprocess(side, recipe.size, recipe.mean, recipe.std, recipe.resize, recipe.crop, config.white)

    @staticmethod
    def from_json(saved: dict[str, Any]) -> "Preprocess":
        saved = {"white": None, **saved}  # older ones do not say it
        known: dict[str, Any] = {field.name: saved[field.name] for field in dataclasses.fields(Preprocess)}
        return Preprocess(**{**known, "mean": tuple(known["mean"]), "std": tuple(known["std"])})

    def __call__(self, picture: Picture) -> Tensor:
        """C × size × size. A JPEG given as a path may be decoded smaller, as evaluation does it; a PIL image is not."""
        return self.view(torch.from_numpy(self.pixels(self.opened(picture)))[None])[0]

    def opened(self, picture: Picture) -> Any:
        """A PIL image in RGB."""
        if isinstance(picture, str | os.PathLike | bytes):
            return _read(picture if isinstance(picture, bytes) else os.fspath(picture), self.side, self.white)
        if isinstance(picture, Tensor | np.ndarray):
            return _pictured(np.asarray(picture.cpu() if isinstance(picture, Tensor) else picture))
        if _is_pil(picture):
            return _in_colours(picture, self.white)
        kinds = "a path, a PIL image, the bytes of an image file or a uint8 array C × H × W"
        raise UserError(f"an image is {kinds}, not {type(picture).__name__}")

    def pixels(self, image: Any, how: None = None) -> np.ndarray:
        """3 × side × side bytes of a PIL image in RGB, or of 3 × H × W bytes, as a `Stream` hands them."""
        return np.array(middle(image, self.side))  # a copy, since PIL's own memory is read-only

    def view(self, pixels: Tensor) -> Tensor:
        """N × 3 × side × side bytes → N × C × size × size, on their device."""
        recipe = Recipe(self.size, self.mean, self.std, (), Augmentation(), self.resize, self.crop)
        images = Images(pixels, torch.empty(0), ())
        return center_view(recipe)(in_channels(images, len(self.mean)).pixels)


def _read(file: str | bytes, side: int, white: int | None) -> Any:
    """`file`: its name, as that of a member of a tar file, or its content."""
    if isinstance(file, str) and isinstance(named := file_or_member(file), Path) and not named.exists():
        raise UserError(f"there is no file {printable(file)}")
    try:
        return read_image(file if isinstance(file, bytes) else opened(file), side, white)
    except Unreadable as reason:
        told = printable(file) if isinstance(file, str) else "an image given as bytes"
        raise UserError(f"{told} cannot be read ({reason})") from None


def _is_pil(picture: Any) -> bool:
    from PIL import Image

    return isinstance(picture, Image.Image)


def _in_colours(image: Any, white: int | None) -> Any:
    try:
        return as_rgb(image, white)
    except Unreadable as reason:
        raise UserError(f"the image cannot be used ({reason})") from None


def _pictured(pixels: np.ndarray) -> Any:
    from PIL import Image

    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[0] not in (1, 3) or not pixels.size:
        raise UserError(
            f"an image must be C × H × W bytes with C 1 or 3, not {pixels.dtype} of shape {tuple(pixels.shape)}"
        )
    colours = np.broadcast_to(pixels, (3, *pixels.shape[1:]))
    return Image.fromarray(np.ascontiguousarray(colours.transpose(1, 2, 0)))


@dataclass(frozen=True)
class Loaded:
    """An encoder in evaluation mode, and what makes its input of a picture."""

    source: Path
    encoder: nn.Module
    preprocess: Preprocess

    @property
    def features(self) -> int:
        """How many each image gets."""
        return features_of(self.encoder)

    @cached_property
    def fingerprint(self) -> str:
        """Of the weights: what `export` writes of them has this hash, wherever they came from."""
        return hashlib.sha256(weights_as_bytes(plain(self.encoder))).hexdigest()

    def encode(self, pictures: Iterable[Picture]) -> Tensor:
        """N × D features in float32, on the encoder's device."""
        if isinstance(pictures, str | bytes | os.PathLike) or _is_pil(pictures):
            raise UserError("encode() takes a list of images, even of one")
        found = [torch.zeros(0, self.features, device=self.device)]
        images = (self.preprocess.opened(picture) for picture in pictures)
        while some := [self.preprocess.pixels(image) for image in islice(images, AT_ONCE)]:
            pixels = np.stack(some)
            found.append(self.encode_pixels(torch.from_numpy(pixels)))
        return torch.cat(found)

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Of N × 3 × side × side bytes."""
        return extract(self.encoder, pixels.to(self.device, non_blocking=True), self.preprocess.view)

    @property
    def device(self) -> torch.device:
        return next(self.encoder.parameters()).device


def load(path: str | Path, device: str | torch.device = "auto") -> Loaded:
    """The encoder of a run's folder, of the folder that `export` wrote, or of the card.json in it."""
    path = Path(path)
    if (path / "run.json").is_file():
        run = load_run(path, "cpu")
        encoder, preprocess = run.encoder, Preprocess.of(run.config)
    elif path.name == CARD or (path / CARD).is_file():
        encoder, preprocess = _of_card(path if path.name == CARD else path / CARD)
    elif path.exists():
        raise UserError(f"{path} is neither a run (it has no run.json) nor an exported encoder (it has no {CARD})")
    else:
        raise UserError(f"there is no {path}: give a run's folder, or one that hypersphere export wrote")
    where = pick_device(device)
    layout = torch.channels_last if where.type == "cuda" else torch.preserve_format
    return Loaded(path, encoder.to(where).to(memory_format=layout).eval(), preprocess)


def read_card(file: Path) -> dict[str, Any]:
    try:
        card = json.loads(file.read_text())
    except FileNotFoundError:
        raise UserError(f"there is no {file}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read ({error})") from None
    if not isinstance(card, dict) or card.get("kind") != KIND:
        raise UserError(f"{file} is no card of an exported encoder")
    return card


def _of_card(file: Path) -> tuple[nn.Module, Preprocess]:
    card = read_card(file)
    check_installed(card.get("encoder"))  # a card may come from anywhere
    try:
        encoder = plain(build_encoder(card["encoder"], **card["architecture"]))
        preprocess = Preprocess.from_json(card["input"])
        expected = card["weights"]["sha256"]
    except UserError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{file} is damaged ({type(error).__name__}: {error})") from None
    weights = file.with_name(WEIGHTS)
    if not weights.is_file():
        raise UserError(f"there is no {weights}, which belongs to {file.name}")
    if hash_of(weights) != expected:
        raise UserError(f"{weights} is not the file that {file.name} describes: its hash is another")
    try:
        encoder.load_state_dict(read_weights(weights))
    except RuntimeError as error:
        raise UserError(f"{weights} does not fit {card['encoder']} ({str(error).splitlines()[1].strip()})") from None
    return encoder, preprocess


def plain(encoder: nn.Module) -> nn.Module:
    """A copy on the CPU, for use alone, whose weights are plain tensors: standardized ones as they come out."""
    encoder = copy.deepcopy(encoder).cpu().to(memory_format=torch.contiguous_format).eval()
    for module in list(encoder.modules()):
        names = list(getattr(module, "parametrizations", ()))
        if names:  # of its own kind: torch's copies share theirs, which removing changes
            kind = type(module)
            module.__class__ = type(kind.__name__, kind.__bases__, dict(vars(kind)))
        for name in names:
            remove_parametrizations(module, name)
    return encoder


def weights_as_bytes(encoder: nn.Module) -> bytes:
    """As a .safetensors file has them."""
    alone = torch.contiguous_format  # copies, since weights may be shared
    tensors = {name: tensor.clone(memory_format=alone) for name, tensor in encoder.state_dict().items()}
    return safetensors.torch.save(tensors, metadata={"format": "pt"})


def hash_of(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
