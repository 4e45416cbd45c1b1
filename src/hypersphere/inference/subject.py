"""An encoder and the images it is shown, from whatever names one: a run, a checkpoint, a model of a library."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.config import Config, recipe
from hypersphere.data import Dataset, Given, Images
from hypersphere.data.files import FILES
from hypersphere.data.loader import center_view
from hypersphere.data.splits import evenly
from hypersphere.errors import UserError, first_line, similar
from hypersphere.evaluate import in_channels
from hypersphere.evaluate.features import frozen
from hypersphere.inference.loading import load, read_card
from hypersphere.nn import build_encoder
from hypersphere.nn.blocks import features_in
from hypersphere.nn.encoders import ENCODERS
from hypersphere.nn.weights import CARD, WEIGHTS, load_weights
from hypersphere.nn.zoo import build_model, model_name
from hypersphere.regularize.where import PARALLEL
from hypersphere.runs.build import view_recipe
from hypersphere.runs.machine import pick_device
from hypersphere.runs.run import Run, load_config, load_run, with_root
from hypersphere.util.written import is_reference
from hypersphere.views import Recipe, Views, folder_recipe

CHECKPOINTS = (".pt", ".pth", ".ckpt", ".safetensors")
AT_ONCE = 64


@dataclass(frozen=True)
class Wishes:
    """What may be said beside the name; None: as fits."""

    data: str | Tensor | None = None  # its name, or images as bytes
    encoder: str | None = None  # of a checkpoint
    pretrained: bool = False
    images: int | None = None
    size: int | None = None  # of the encoder's input, in pixels
    root: Path | None = None
    device: str | torch.device = "auto"

    def __post_init__(self) -> None:
        if isinstance(self.data, str | os.PathLike):
            object.__setattr__(self, "data", Dataset.resolve(Given(os.fspath(self.data), root=self.root)).name)
        for name, least in (("images", 2), ("size", 1)):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, Integral) and int(value) >= least):
                raise UserError(f"`{name}` must be a whole number of at least {least}, not {value!r}")


class Pictures(NamedTuple):
    pixels: Tensor
    recipe: Recipe
    told: str  # what they are, in words


class Subject(NamedTuple):
    title: str
    encoder: nn.Module
    parts: dict[str, nn.Module]  # networks whose weights are looked at
    pixels: Tensor
    recipe: Recipe
    channels: int  # of the encoder's input, and its side in pixels
    side: int

    def fitted(self, view: Tensor) -> Tensor:
        """As the encoder takes it: grey images as equal channels, others enlarged or made smaller; in its precision."""
        view = view.expand(-1, self.channels, -1, -1) if view.shape[1] == 1 else view
        if view.shape[2] != self.side:
            view = F.interpolate(view, self.side, mode="bilinear", antialias=True)
        return view.to(_weight(self.encoder).dtype)

    def features(self, view: Tensor) -> Tensor:
        return features_in(self.encoder(view))

    def views(self) -> Iterator[tuple[Tensor, ...]]:
        """Piece by piece: the middle of each image, and two views of it."""
        views, middle = Views(self.recipe, 0), center_view(self.recipe)
        for sample in torch.arange(len(self.pixels), device=self.pixels.device).split(AT_ONCE):
            made = (middle(self.pixels[sample]), *views.training(self.pixels, sample, 0)[:2])
            yield tuple(self.fitted(view) for view in made)


def subject_of(target: str | Path | Run | nn.Module, wishes: Wishes) -> Subject:
    if isinstance(target, str | Path) and (run := _folder_with("run.json", Path(target), "checkpoint.pt")):
        target = load_run(run, wishes.device)
    if isinstance(target, Run):
        return _of_run(target, wishes)
    if isinstance(target, str | Path) and (exported := _exported(Path(target), wishes)):
        return _of_exported(exported, wishes)
    if isinstance(target, nn.Module):
        encoder = _unwrapped(target)
        title = type(encoder).__name__
    else:
        encoder, title = _named(str(target), wishes)
        encoder.to(pick_device(wishes.device))
    config, channels = recipe("byol", "digits", root=wishes.root), _channels(encoder, wishes.data)
    pictures = _pictures(config, wishes, wishes.images or 256, _like_photographs(wishes.data, channels))
    return _shown(title, encoder, {"encoder": encoder}, pictures, channels, _sides(encoder, wishes))


def _unwrapped(network: nn.Module) -> nn.Module:
    """What is inside torch.compile, DataParallel and DistributedDataParallel."""
    while inside := getattr(network, "_orig_mod", None) or (isinstance(network, PARALLEL) and network.module):
        network = inside
    return network


def _of_run(run: Run, wishes: Wishes) -> Subject:
    config = _located(run.config, wishes)
    own = view_recipe(config)
    parts = {name: part for name, part in run.method.named_children() if _learns(part)}
    title = f"{run.config.title}, update {run.step} of {run.path}"
    pictures = _pictures(config, wishes, wishes.images or 2000, own, run.path)
    return _shown(title, run.encoder, parts, pictures, len(own.mean), (wishes.size or own.size,))


def _located(config: Config, wishes: Wishes) -> Config:
    """With the root that is wished for: that of its data, or of others which are shown instead."""
    if wishes.data is None:
        return with_root(config, wishes.root)
    return config.replace(root=wishes.root or config.root)


def _folder_with(known: str, path: Path, *names: str) -> Path | None:
    """The folder that holds a file of this name, given as itself or by one of the names in it."""
    folder = path.parent if path.name in names else path
    return folder if (folder / known).is_file() else None


def _exported(path: Path, wishes: Wishes) -> Path | None:
    """The folder that `export` wrote, but where something else is said of the weights in it."""
    return None if wishes.encoder is not None else _folder_with(CARD, path, WEIGHTS, CARD)


def _of_exported(folder: Path, wishes: Wishes) -> Subject:
    loaded = load(folder, wishes.device)
    about = read_card(folder / CARD).get("run")
    if not isinstance(about, dict):
        raise UserError(f"{folder / CARD} does not say which run it is of: name its weights, and `encoder`")
    config = Config.from_json(about["config"], import_method=False)  # a card may come from anywhere
    config, run = _located(config.replace(root=None), wishes), folder.absolute().parent
    listed = (run / FILES).is_file() and (run / "run.json").is_file() and load_config(run).hash == about["hash"]
    if wishes.data is None and not listed:
        dataset = Dataset.resolve(config)
        dataset.check_present(folder)
        data, root = dataset.relocated()
        config = config.replace(data=data, root=root)
    own = view_recipe(config)
    pictures = _pictures(config, wishes, wishes.images or 2000, own, run if listed else None)
    parts, sides = {"encoder": loaded.encoder}, (wishes.size or own.size,)
    return _shown(f"{folder}", loaded.encoder, parts, pictures, len(own.mean), sides)


def _pictures(config: Config, wishes: Wishes, n: int, like: Recipe, run: Path | None = None) -> Pictures:
    """Those wished for; else the config's, as the run held them out."""
    if isinstance(wishes.data, Tensor):
        return _given(wishes.data, n, like)
    if wishes.data not in (None, config.data):
        config, run = recipe("byol", wishes.data or "", root=config.root, white=config.white), None
    dataset = Dataset.resolve(config)
    split = dataset.split(config.holdout, run)
    _, images = dataset.in_memory(split, (2, n))
    known = run is not None or dataset.recipe_hints() is None  # which of them were held out
    kind = ("held-out " if split.apart else "training ") if known else ""
    some = images.pixels
    return Pictures(some[evenly(len(some), n)], view_recipe(config), f"{kind}images of {config.data}")


def _like_photographs(data: str | Tensor | None, channels: int) -> Recipe:
    """For images of the user's, of their size."""
    usual = folder_recipe(min(data.shape[2:]) if isinstance(data, Tensor) else 224)
    return usual if channels != 1 else replace(usual, mean=(0.449,), std=(0.226,))


def _given(images: Tensor, n: int, like: Recipe) -> Pictures:
    """Evenly from all images, in the channels of a recipe; they may be of any size, as those of a folder."""
    chosen = images[evenly(len(images), n).to(images.device)]
    pixels = in_channels(Images(chosen, torch.empty(0), ()), len(like.mean)).pixels
    of_any_size = folder_recipe(like.size)
    return Pictures(pixels, replace(like, resize=of_any_size.resize, crop=of_any_size.crop), "images given")


def as_bytes(images: Tensor) -> Tensor:
    """Images of the user's, N × C × H × W, of bytes or of floats between 0 and 1."""
    shape = f"{images.dtype} of shape {tuple(images.shape)}"
    if images.ndim != 4 or images.shape[1] not in (1, 3) or len(images) < 2:
        raise UserError(f"`data` must be a name, or two images or more, N × C × H × W with C 1 or 3, not {shape}")
    if images.dtype == torch.uint8:
        return images
    if not images.is_floating_point() or not (images.min() >= 0 and images.max() <= 1):
        raise UserError(f"`data` must be bytes (uint8), or floats from 0 to 1 that are not normalized yet, not {shape}")
    return (255 * images.float()).round().byte()


def _shown(
    title: str,
    encoder: nn.Module,
    parts: dict[str, nn.Module],
    pictures: Pictures,
    channels: int,
    sides: Sequence[int] = (),
) -> Subject:
    """The pictures are of the first of the sides that the encoder takes; where there are none to choose from, as their
    recipe has them."""
    pixels, views = pictures.pixels.to(_weight(encoder).device), pictures.recipe
    if pixels.shape[1] not in (1, channels):
        raise UserError(f"{title} takes images of {channels} channel, {pictures.told} have {pixels.shape[1]}")
    side = _taken(Subject(title, encoder, parts, pixels, views, channels, 0), sides or (views.size,))
    return Subject(f"{title}: {len(pixels):,} {pictures.told}", encoder, parts, pixels, views, channels, side)


def _taken(shown: Subject, sides: Sequence[int]) -> int:
    """The first side of images for which the encoder has features."""
    some, problems = center_view(shown.recipe)(shown.pixels[:2]), list[Exception]()
    for side in sides:
        try:
            with frozen(shown.encoder):
                shown.features(shown._replace(side=side).fitted(some))
            return side
        except Exception as problem:  # of whatever kind, in a network that we do not know
            problems.append(problem)
    shape = f"{shown.channels} × {sides[0]} × {sides[0]}"
    told = f"{shown.title} does not take {shape} images ({first_line(problems[0])})"
    raise UserError(f"{told}: say the `size` it takes") from problems[0]


def _learns(part: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in part.parameters())


def _weight(network: nn.Module) -> Tensor:
    """Any: on its device, in its precision."""
    return next((weight for weight in network.parameters() if weight.is_floating_point()), torch.zeros(0))


def _stem(network: nn.Module) -> nn.Conv2d | None:
    return next((layer for layer in network.modules() if isinstance(layer, nn.Conv2d)), None)


def _channels(network: nn.Module, data: str | Tensor | None) -> int:
    """Of its first convolution; else of the images given."""
    if (stem := _stem(network)) is not None:
        return stem.in_channels
    return data.shape[1] if isinstance(data, Tensor) else 3


def _sides(network: nn.Module, wishes: Wishes) -> tuple[int, ...]:
    """To try, in this order; none: as the chosen data have them. Digits can be of any size. A first convolution in
    colours that skips pixels is that of networks for photographs; others are for small images."""
    if side := wishes.size or _own_side(network):
        return (side,)
    if wishes.data is not None:
        return ()
    stem = _stem(network)
    large = stem is not None and stem.in_channels == 3 and max(stem.stride) > 1
    return (224, 32, 8) if large else (32, 224, 8)


def _own_side(network: nn.Module) -> int | None:
    """As it says itself: a network of ours, of timm, a ViT of torchvision, one of Hugging Face."""
    timm = getattr(network, "pretrained_cfg", None) or getattr(network, "default_cfg", None) or {}
    said = (
        getattr(network, "input_size", None),
        getattr(getattr(network, "patch_embed", None), "img_size", None),
        timm.get("input_size"),
        getattr(network, "image_size", None),
        getattr(getattr(network, "config", None), "image_size", None),
    )
    side = next((found for found in said if found is not None), None)
    return side[-1] if isinstance(side, Sequence) else side


def _named(target: str, wishes: Wishes) -> tuple[nn.Module, str]:
    """A checkpoint's encoder, or a model by name; with its title."""
    path = Path(target)
    if path.suffix not in CHECKPOINTS:
        title = f"{model_name(target) or target}, {'pretrained' if wishes.pretrained else 'as it is initialized'}"
        return _model(target, wishes.pretrained), title
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    if wishes.encoder is None:
        raise UserError(f"{path}: say which encoder it is of with `encoder`, such as torchvision/resnet50")
    encoder = _model(wishes.encoder, False)
    load_weights(encoder, path)
    return encoder, f"{path} ({wishes.encoder})"


def _model(name: str, pretrained: bool) -> nn.Module:
    if name.startswith("hypersphere/") or is_reference(name):
        return build_encoder(name, channels=1 if name == "hypersphere/digits" else 3)
    whole = model_name(name)
    if whole is None:
        if Path(name).exists():
            raise UserError(f"{name} is no run, no checkpoint ({', '.join(CHECKPOINTS)}) and no file of embeddings")
        kinds = "a run's folder, a checkpoint, a file of embeddings, or a model such as torchvision/resnet18"
        names = [*ENCODERS, *(encoder.partition("/")[2] for encoder in ENCODERS)]
        raise UserError(f"{name!r} is not known{similar(name, names)}: give {kinds}")
    return build_model(whole, pretrained=pretrained)
