"""An encoder and the images it is shown, from whatever names one: a run, a checkpoint, a model of a library."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.build import view_recipe
from hypersphere.config import Config, recipe
from hypersphere.errors import UserError, similar
from hypersphere.evaluate import centre
from hypersphere.evaluate.features import frozen
from hypersphere.loading import CARD, WEIGHTS, load, read_card
from hypersphere.machine import pick_device
from hypersphere.nn import build_encoder
from hypersphere.nn.blocks import features_in
from hypersphere.nn.encoders import ENCODERS
from hypersphere.nn.weights import load_weights
from hypersphere.nn.zoo import build_model, model_name
from hypersphere.run import Run, load_run
from hypersphere.sets import images_of
from hypersphere.views import Recipe, Views
from hypersphere.written import is_reference

CHECKPOINTS = (".pt", ".pth", ".ckpt", ".safetensors")
AT_ONCE = 64


@dataclass(frozen=True)
class Wishes:
    """What may be said beside the name; None: as fits."""

    data: str | None = None
    encoder: str | None = None  # of a checkpoint
    pretrained: bool = False
    images: int | None = None
    size: int | None = None  # of the encoder's input, in pixels
    root: Path | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        for name, least in (("images", 2), ("size", 1)):
            if getattr(self, name) is not None and getattr(self, name) < least:
                raise UserError(f"`{name}` must be at least {least}, not {getattr(self, name)}")


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
        views, middle = Views(self.recipe, 0), centre(self.recipe)
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
    encoder, title = (target, type(target).__name__) if isinstance(target, nn.Module) else _named(str(target), wishes)
    if not isinstance(target, nn.Module):
        encoder.to(pick_device(wishes.device))
    config = recipe("byol", wishes.data or "digits", root=wishes.root)
    sides = _sides(encoder, wishes)
    return _shown(title, encoder, {"encoder": encoder}, config, _channels(encoder), sides, wishes.images or 256)


def _of_run(run: Run, wishes: Wishes) -> Subject:
    config = run.config.replace(root=wishes.root or run.config.root)
    own = view_recipe(config)
    parts = {name: part for name, part in run.method.named_children() if _learns(part)}
    title = f"{run.config.title}, update {run.step} of {run.path}"
    path: Path | None = run.path
    if wishes.data not in (None, config.data):
        config, path = recipe("byol", wishes.data or "", root=wishes.root or run.config.root), None
    sides = (wishes.size or own.size,)
    return _shown(title, run.encoder, parts, config, len(own.mean), sides, wishes.images or 2000, path)


def _folder_with(known: str, path: Path, *names: str) -> Path | None:
    """The folder that holds a file of this name, given as itself or by one of the names in it."""
    folder = path.parent if path.name in names else path
    return folder if (folder / known).is_file() else None


def _exported(path: Path, wishes: Wishes) -> Path | None:
    """The folder that `export` wrote, but where something else is said of the weights in it."""
    return None if wishes.encoder is not None else _folder_with(CARD, path, WEIGHTS, CARD)


def _of_exported(folder: Path, wishes: Wishes) -> Subject:
    loaded = load(folder, wishes.device)
    learnt = Config.from_json(read_card(folder / CARD)["run"]["config"])
    config = recipe("byol", wishes.data, root=wishes.root) if wishes.data else learnt.replace(root=wishes.root)
    channels, sides = len(loaded.preprocess.mean), (wishes.size or loaded.preprocess.size,)
    parts = {"encoder": loaded.encoder}
    return _shown(f"{folder}", loaded.encoder, parts, config, channels, sides, wishes.images or 2000)


def _shown(
    title: str,
    encoder: nn.Module,
    parts: dict[str, nn.Module],
    config: Config,
    channels: int,
    sides: Sequence[int],
    n: int,
    run: Path | None = None,
) -> Subject:
    """With some held-out images of the config's data, as the run held them out; of the first of the sides that the
    encoder takes, or, where there are none to choose from, as the data have them."""
    pixels = images_of(config, config.holdout, (2, n), run=run)[1].pixels[:n].to(_weight(encoder).device)
    if pixels.shape[1] not in (1, channels):
        raise UserError(f"{title} takes images of {channels} channel, those of {config.data} have {pixels.shape[1]}")
    views = view_recipe(config)
    side = _taken(Subject(title, encoder, parts, pixels, views, channels, 0), sides or (views.size,))
    title = f"{title}: {len(pixels):,} held-out images of {config.data}"
    return Subject(title, encoder, parts, pixels, views, channels, side)


def _taken(shown: Subject, sides: Sequence[int]) -> int:
    """The first side of images for which the encoder has features."""
    some, problems = centre(shown.recipe)(shown.pixels[:2]), list[Exception]()
    for side in sides:
        try:
            with frozen(shown.encoder):
                shown.features(shown._replace(side=side).fitted(some))
            return side
        except Exception as problem:  # of whatever kind, in a network that we do not know
            problems.append(problem)
    shape = f"{shown.channels} × {sides[0]} × {sides[0]}"
    reason = (str(problems[0]) or type(problems[0]).__name__).splitlines()[0]
    raise UserError(f"{shown.title} does not take {shape} images ({reason}): say the `size` it takes") from problems[0]


def _learns(part: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in part.parameters())


def _weight(network: nn.Module) -> Tensor:
    """Any: on its device, in its precision."""
    return next((weight for weight in network.parameters() if weight.is_floating_point()), torch.zeros(0))


def _stem(network: nn.Module) -> nn.Conv2d | None:
    return next((layer for layer in network.modules() if isinstance(layer, nn.Conv2d)), None)


def _channels(network: nn.Module) -> int:
    return 3 if (stem := _stem(network)) is None else stem.in_channels


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
